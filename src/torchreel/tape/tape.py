"""A tape: the ops of a function, ready to be looked at, kept and run again."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from torchreel import _tape
from torchreel.errors import GuardError, ReplayError, TraceError
from torchreel.program.model import STATE_ROLES, Digest, Input, Program, Tree
from torchreel.program.query.source_frames import source_line
from torchreel.tape.capture import compiled
from torchreel.tape.capture.results.effects import Effect, leave, slots_of
from torchreel.tape.replay.arguments import Arguments
from torchreel.tape.replay.memory import Memory
from torchreel.tape.replay.outputs import Outputs

if TYPE_CHECKING:
    from torchreel.tape.capture.captured import Captured, Parts


class Tape:
    """What a function did, op by op. See docs/tape.md.

    A tape made in this process replays on the very tensors that the function closed over, in place, as calling the
    function would; a loaded one owns copies of them.
    """

    def __init__(self, source: Captured | Parts | None) -> None:
        self._source = source

    def fill(self, source: Captured) -> None:
        """Give a tape that was handed out before its end what was captured."""
        self._source = source

    @functools.cached_property
    def _parts(self) -> Parts:
        from torchreel.tape.capture.captured import Captured

        if self._source is None:
            raise TraceError("The tape is not complete: it can be used after the `with` block that makes it.")
        return self._source.parts() if isinstance(self._source, Captured) else self._source

    @property
    def program(self) -> Program:
        """The tape as plain data."""
        return self._parts.program

    @property
    def state(self) -> dict[str, torch.Tensor]:
        """Parameters, buffers, gradients, optimizer state and captured tensors, by name."""
        slots = self.program.slots
        return {
            slots[slot].name: tensor for slot, tensor in self._parts.tensors.items() if slots[slot].role in STATE_ROLES
        }

    @property
    def inputs(self) -> list[Input]:
        """What replay() takes: the tensors among the arguments, by name, each with its slot."""
        return self.program.inputs

    @property
    def outputs(self) -> Tree:
        """What replay() returns, as a tree whose leaves are slots and constants."""
        return self.program.outputs

    @property
    def tensors(self) -> dict[int, torch.Tensor]:
        """The tensor of every slot that no op made."""
        return self._parts.tensors

    @property
    def start(self) -> dict[int, torch.Tensor]:
        """With hashes: the bytes of each storage of state and inputs as they were at the beginning."""
        return self._parts.start

    def __len__(self) -> int:
        return len(self.program.ops)

    def __repr__(self) -> str:
        if self._source is None:
            return "<Tape, being made>"
        program = self.program
        return f"<Tape of {program.provenance.function}: {len(program.ops)} ops, {len(self.state)} tensors of state>"

    def replay(self, *args: Any, **kwargs: Any) -> Any:
        """Run all ops again, on new inputs of the same shapes, and return what the function returned.

        Stops with a GuardError where a number that the function used in Python is another one now.
        """
        # Before the parts are put together of what is there now.
        guards, assumptions = getattr(self._source, "guards", None), getattr(self._source, "assumptions", None)
        if assumptions is not None:
            assumptions.check()
        if guards is not None:
            guards.check()
        if self._parts.refusal:
            raise ReplayError(self._parts.refusal)
        if guards is not None and guards.proof is not None:
            guards.proof.warn()
        given = self._arguments.match(args, kwargs)
        by_slot = dict(zip((each.slot for each in self.inputs), given, strict=True))
        if guards is not None:
            guards.check_inputs([each.name for each in self.inputs], given)
        gradients = self._gradients(by_slot)
        self._memory.check(by_slot, gradients)
        inputs = self._arguments.fitted(given, self._memory)
        for slot, gradient in gradients.items():
            self._plan.set_external(slot, gradient)
        for count in self._parts.counts:
            count.give()
        effects = self.effects
        values, _ = self.run(inputs, False, effects)
        for count in self._parts.counts:
            count.take()
        results = len(self._outputs.slots)
        result = self._outputs.rebuild(values[:results])
        leave(effects, values[results:], result)
        return result

    @property
    def effects(self) -> list[Effect]:
        """What the function leaves in Python's variables and containers, besides what it returns."""
        return self._parts.guards.effects() if self._parts.guards is not None else []

    def run(
        self, inputs: Sequence[torch.Tensor], digests: bool = False, effects: Sequence[Effect] = ()
    ) -> tuple[list[torch.Tensor], list[list[Digest | None] | None]]:
        """Run on a list of inputs; gives the tensors among the results, and with `digests` those of every op.

        After the results come the tensors of `effects`.
        """
        plan = self._plan
        given = list(zip((each.slot for each in self.inputs), inputs, strict=True))
        failure, values = plan.run(given, [*self._outputs.slots, *slots_of(effects)], digests)
        if failure is not None:
            raise self._error(*failure)
        found: list[list[Digest | None] | None] = []
        if digests:
            by_op = plan.digests()
            found = [
                [None if row is None else Digest(*row) for row in by_op[index]] if index in by_op else None
                for index in range(len(self))
            ]
        return values, found

    def example_inputs(self) -> list[torch.Tensor]:
        """The inputs that it was traced with."""
        missing = [each.name for each in self.inputs if each.slot not in self._parts.tensors]
        if missing:
            raise ReplayError(f"The tape was kept without its inputs ({', '.join(missing)}): give them to replay().")
        return [self._parts.tensors[each.slot] for each in self.inputs]

    def restore(self) -> None:
        """Put state, inputs and random generators back to what they were when the tape began."""
        if not self.start and (self.state or self.inputs):
            raise ReplayError("The tape does not know the state that it began with: trace it with hashes=True.")
        slots = self.program.slots
        with torch.no_grad():
            for slot, tensor in self._parts.tensors.items():
                before = self.start.get(slots[slot].storage)
                if before is not None and slots[slot].layout == "strided":
                    whole = torch.empty(0, dtype=torch.uint8).set_(tensor.detach().untyped_storage())
                    whole[: before.numel()].copy_(before)
        for record in self.program.generators:
            if record.is_default:
                torch.set_rng_state(torch.frombuffer(bytearray(record.state), dtype=torch.uint8))
        for binding in self.program.bindings:
            if binding.kind == "grad" and binding.owner in self._parts.tensors:
                self._parts.tensors[binding.owner].grad = None

    def python(self) -> str:
        """The tape as a Python program that runs."""
        from torchreel.program.text.source import python_source

        return python_source(self.program)

    def fx(self) -> torch.fx.GraphModule:
        """The tape as a torch.fx graph."""
        from torchreel.tape.transform.graph_module import graph_module

        given = {each.slot for each in self.inputs}
        return graph_module(self.program, {s: t for s, t in self._parts.tensors.items() if s not in given})

    def save(self, path: str | os.PathLike[str], data: bool = True) -> None:
        """Write it to one file, with its state and inputs or without."""
        from torchreel.tape.replay.save import save

        for count in self._parts.counts:
            count.give()
        save(self, path, data)

    def _gradients(self, inputs: dict[int, torch.Tensor]) -> dict[int, torch.Tensor]:
        """The gradients of now, by the slots of the gradients when the tape began."""
        guards = self._parts.guards
        return guards.leaves.now(self.program, self._parts.tensors, inputs) if guards is not None else {}

    @functools.cached_property
    def _memory(self) -> Memory:
        return Memory(self.program, self._parts.tensors, self._parts.owned)

    @functools.cached_property
    def _arguments(self) -> Arguments:
        return Arguments(self.program, self._parts.arguments, self._parts.asked)

    @functools.cached_property
    def _outputs(self) -> Outputs:
        return Outputs(self.program, self._parts.results)

    @functools.cached_property
    def _plan(self) -> Any:
        parts = self._parts
        self._check_replayable()
        wanted = [*self._outputs.slots, *(each.value for each in parts.program.bindings if each.value >= 0)]
        wanted += [each.owner for each in parts.program.bindings]
        wanted += slots_of(self.effects)
        try:
            plan = _tape.Plan(parts.program.slots, parts.program.ops, parts.kept, wanted)
        except RuntimeError as error:
            raise ReplayError(f"The tape cannot be replayed here. {error}") from None
        given = {each.slot for each in self.inputs}
        for slot, tensor in parts.tensors.items():
            if slot not in given:
                plan.set_external(slot, tensor)
        for binding in parts.program.bindings:
            plan.bind(binding.kind, binding.owner, binding.value, binding.cleared)
        plan.set_region(lambda region, tensors: compiled.run(parts.regions[region], tensors))
        return plan

    def _check_replayable(self) -> None:
        slots, given = self.program.slots, {each.slot for each in self.inputs}
        for index, slot in enumerate(slots):
            if slot.role != "made" and index not in given and index not in self._parts.tensors:
                raise ReplayError(
                    f"The tape was kept without its data ({slot.name} is missing), so it can be read but not replayed: "
                    "save it with data=True."
                )

    def _error(self, kind: str, index: int, recorded: str, now: str) -> Exception:
        program = self.program
        if kind == "state":
            return ReplayError(
                f"{program.slots[index].name} was {recorded} when the tape was made, and is {now} now: trace again."
            )
        if kind == "gradient":
            name = program.slots[index].name
            return ReplayError(
                f"The gradient of {name} was None when the tape was made, and is not now, so the function would add to "
                f"it: clear it first, with zero_grad() in the function or with {name}.grad = None before the replay."
            )
        if kind == "result":
            return ReplayError(f"What the tape gives cannot be had: {recorded}")
        op = program.ops[index]
        where = f"{op.name} (op {index}{_comma(source_line(program, op))})"
        if kind == "guard":
            return GuardError(
                f"{where} gave {now} where {recorded} was recorded, and Python went on with that number: what the "
                "function would do now is not on the tape. Trace it again with these inputs and this state."
            )
        if kind == "shape":
            return GuardError(
                f"{where} gave {now} where {recorded} was recorded: sizes that depend on values are others now. "
                "Trace it again with these inputs."
            )
        return ReplayError(f"{where} failed: {recorded}")


def _comma(text: str) -> str:
    return f", {text}" if text else ""
