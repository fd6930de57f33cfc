"""One call of a function under capture: run as anybody would call it, then made a recording."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torchreel import _graphs, _tape
from torchreel._torch.autograd import is_functorch_wrapper
from torchreel._torch.dispatch import import_schema_check
from torchreel._torch.tensors import OVERLAPS, internal_overlap
from torchreel.errors import TapeError, first_line
from torchreel.graphs.options import GraphOptions
from torchreel.graphs.record.derivatives import Derivatives, Pattern, Segment, differentiate, owners_of
from torchreel.graphs.record.generated_lines import NodeLines, op_line
from torchreel.graphs.record.joined import joined_outputs, leaves_for
from torchreel.graphs.record.object_arguments import fit_objects, other_objects
from torchreel.graphs.record.output_facts import OutputFacts
from torchreel.graphs.record.program_facts import (
    held_gradients,
    is_unsafe,
    op_index,
    reads_old_gradients,
    states_set,
)
from torchreel.graphs.record.recorded_call import RecordedCall, output_line
from torchreel.graphs.refusal import RefusedError
from torchreel.guards.followed_call import FollowedCall
from torchreel.guards.objects import objects_in
from torchreel.guards.python_guards import PythonGuards
from torchreel.program.model import Program, Ref
from torchreel.program.query.writes import read_and_written, written_storages
from torchreel.tape.capture.captured import Captured, Parts
from torchreel.tape.capture.names import reachable
from torchreel.tape.capture.parameter_names import ParameterNames
from torchreel.tape.capture.session import Session
from torchreel.tape.capture.trace import described
from torchreel.tape.structure import Structure, TensorLeaf

_numbers = itertools.count(1)
_CASTS = frozenset(("aten::_to_copy", "aten::to.dtype", "aten::to.dtype_layout", "aten::to.device", "aten::to.other"))
_BRANCHES = 8  # graphs of one recording in one thread, before outputs are copied
# What the first trace of a process has to do once is done here, so that the first recording takes milliseconds.
_tape.use_wrappers(True)
import_schema_check()


class Take:
    """One call under capture. What it gives is `result`; whether it can be cached, `recording()` tells."""

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        follows: bool = True,
        lines: NodeLines | None = None,
    ) -> None:
        self._function = function
        self._lines = lines or {}
        self._follows = follows
        self._followed: FollowedCall | None = None
        self._bumps: dict[int, int] = {}  # of versions, by the id of a tensor
        self._ended = False  # the capture
        self.modes = _graphs.Modes.now()
        self._autocast = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
        self.signature = _graphs.Signature(args, kwargs)
        self._given = Structure((args, kwargs))
        fit_objects(self.signature, self._given)
        self._inputs = list(self._given.tensors)

    def begin(self) -> None:
        """Start the capture: run() is next. Raises TraceError where there is one already."""
        self._leaves = (
            leaves_for(self._inputs) if self.modes.grad else self._inputs
        )  # before: it is no part of the tape
        self._session = Session(self._inputs, False)

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any], pattern: Pattern | None) -> Any:
        """Call the function, as anybody would; then, if it can be differentiated, its backward, for nobody."""
        inputs = self._leaves
        joins = any(leaf is not tensor for leaf, tensor in zip(inputs, self._inputs, strict=True))
        if joins:
            args, kwargs = self._given.rebuild(inputs)
        self.derivatives: Derivatives | None = None
        self.refusal = ""
        self._owners: list[torch.Tensor] = []
        self._outputs: list[torch.Tensor] = []
        self._separate: list[Segment] = []
        try:
            result = self._called(args, kwargs)
        except BaseException:
            self._give_up()
            raise
        try:
            self._take(result, args, kwargs, pattern)
        except Exception as error:  # what comes after the call is ours, and must not fail for the caller
            self.refusal = f"cannot be recorded: {type(error).__name__}: {first_line(error)}"
            self._give_up()
        if not joins:
            self._outputs, self._separate = [], []
            return result
        outputs = joined_outputs(self._outputs, self._owners, inputs, self._inputs, self._separate)
        self._outputs, self._separate = [], []
        return self._results.rebuild(outputs, other_objects(args, kwargs))

    def _called(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self._follows:
            return self._function(*args, **kwargs)
        pairs = zip(self._leaves, self._inputs, strict=True)
        originals = {id(leaf): one for leaf, one in pairs if leaf is not one}
        objects = list(objects_in((args, kwargs))) if self.signature.has_fit else []
        hidden, exchanged = self._session.hidden(), self._session.exchanged()
        self._followed = FollowedCall(args, kwargs, objects, originals, hidden, exchanged)
        return self._followed.run(self._function, args, kwargs)

    def _take(self, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any], pattern: Pattern | None) -> None:
        """Look at what the call gave and left, and take its backward along."""
        session = self._session
        self._results = Structure(result, other_objects(args, kwargs), unique=True)
        if self._followed is not None:
            self._followed.finish(result, bool(session.steps or session.capture.gradients()))
            self._bumps = self._followed.bumps()
        outputs = self._outputs = list(self._results.tensors)
        self._output_facts = OutputFacts(outputs)
        self._boundary = session.capture.op_count
        if self.modes.grad:
            self._owners = owners_of(session, self._leaves)
            followed = self._followed is None or not self._followed.reason  # else its backward would run for nobody
            try:
                if followed:
                    self.derivatives = differentiate(session, self._leaves, self._owners, outputs, pattern)
            except RefusedError as refusal:
                self.refusal = str(refusal)
            if self.derivatives is not None and len(self.derivatives.segments) > 1:
                segments = self.derivatives.segments
                self._separate = [dataclasses.replace(one, gradients=[], derivatives=[]) for one in segments]
        self._also = set() if self._followed is None else self._inputs_by_other_ways()
        self._result_ids = [id(tensor) for tensor in outputs]
        asked = [] if self.derivatives is None else self.derivatives.tensors()
        self._ended = True
        slots = session.end([*outputs, *asked])
        self._slots, asked_slots = slots[: len(outputs)], slots[len(outputs) :]
        if self.derivatives is not None:
            self.derivatives.take_slots(asked_slots)
        if self._followed is not None:
            self._followed.seal(self._leaves)
        function = self._function
        self._captured = Captured(
            session,
            self._given,
            self._results,
            self._slots,
            described(function),
            lambda: reachable(function),
            parameters=lambda: ParameterNames(function),
        )

    def _give_up(self) -> None:
        if not self._ended:
            self._ended = True
            self._session.end([])
        if self._followed is not None:
            self._followed.close()

    def recording(
        self,
        options: GraphOptions,
        again: Callable[..., Any],
        after: PythonGuards | None,
        fixed: Sequence[bool] | None,
        inputs_move: bool,
    ) -> RecordedCall:
        """Raises RefusedError. `fixed`: see Graphed; `inputs_move`: see CallKind."""
        if self._followed is not None and self._followed.reason:
            raise RefusedError(self._followed.reason)
        if self.refusal:
            raise RefusedError(self.refusal)
        guards = self._guards(after)
        try:
            parts = self._captured.parts(lines=False)
        except TapeError as error:
            raise RefusedError(f"cannot be put on a tape: {error}") from None
        parts.assumptions = parts.guards = None  # the guards know more, and keep nothing alive
        self._mark_cleared(parts)
        if self._followed is not None:
            parts.also = set(self._also)
        elif inputs_move:
            parts.also.clear()
        self._check_what_is_left(parts)
        native = self._native(parts, options)
        self._check_writes(parts, native, options)
        replay = self._replay(parts.program, native, options, list(fixed or ()))
        number = next(_numbers)
        program = parts.program
        entry = self._cache_entry(parts, replay, guards, again, number)
        lowering = None
        if options.inductor:
            from torchreel.graphs.inductor.lowering import Lowering

            lowering = Lowering(program, native, replay, self.modes.threads, options)
        return RecordedCall(
            entry,
            number,
            str(self.signature),
            program,
            parts,
            guards,
            self.derivatives,
            self.modes,
            self._autocast,
            lowering,
            [] if self._followed is None else self._followed.generators,
            self._lines,
        )

    def _cache_entry(
        self, parts: Parts, replay: _graphs.Replay, guards: PythonGuards | None, again: Callable[..., Any], number: int
    ) -> Any:
        """How a call is replayed: from its key and its guards to outputs that autograd knows as eager's."""
        shape, rebuild = self._results.shape, None
        if not _is_simple(shape):
            shape, rebuild = None, functools.partial(_rebuilt, self._results)
        native = None if guards is None else guards.native
        entry = _graphs.CacheEntry(self.signature, self.modes, replay, native, shape, TensorLeaf, rebuild, number)
        program, facts = parts.program, self._output_facts
        if self.derivatives is not None:
            self.derivatives.attach(entry, program, self._begins(program), parts.tensors, again)
        elif self.modes.grad:
            entry.set_spent(facts.with_history)
        entry.set_detached(self._aliases(parts))
        inputs = {each.slot for each in program.inputs}
        own = {slot: tensor for slot, tensor in parts.tensors.items() if slot not in inputs}
        known = {*map(id, self._leaves), *map(id, own.values())}
        entry.set_aliases(
            facts.aliases(program, self._slots, self._leaves, own), facts.in_other_mode(self.modes, known)
        )
        self.signature.forget_example()
        return entry

    def _aliases(self, parts: Parts) -> list[int]:
        """Results that lie as an input or a tensor of the function's own, and are another tensor: x.detach()."""
        given = {each.slot: tensor for each, tensor in zip(parts.program.inputs, self._leaves, strict=True)}
        known = {**parts.tensors, **given}
        return [
            index
            for index, (slot, number) in enumerate(zip(self._slots, self._result_ids, strict=True))
            if slot in known and id(known[slot]) != number and number not in map(id, (*self._inputs, *self._leaves))
        ]

    def _mark_cleared(self, parts: Parts) -> None:
        """Which gradients the function itself sets to None before they are made anew."""
        if self._followed is None:
            return
        cleared = {id(tensor) for tensor in self._followed.cleared}
        for binding in parts.program.bindings:
            if binding.kind == "grad":
                binding.cleared = id(parts.tensors.get(binding.owner)) in cleared

    def _inputs_by_other_ways(self) -> set[int]:
        """Slots of arguments that the function also finds by itself, or that lie as a tensor of its own does."""
        assert self._followed is not None
        capture = self._session.capture
        own = [one for one in (*self._followed.also, *self._followed.own_tensors()) if _has_memory(one)]
        return {capture.find(tensor) for tensor in own} & set(capture.input_slots)

    def _check_what_is_left(self, parts: Parts) -> None:
        """A replay leaves nothing in Python, and finds what the recorded call found."""
        if parts.refusal:
            raise RefusedError(f"cannot be replayed: {parts.refusal}")
        if self._session.scheduled:
            raise RefusedError("steps a scheduler of the learning rate: call scheduler.step() outside of it")
        unsafe = next(filter(is_unsafe, dict.fromkeys(op.name for op in parts.program.ops)), None)
        if unsafe is not None:
            raise RefusedError(f"runs {unsafe}, which is marked as unsafe for graphs (torch.Tag.cudagraph_unsafe)")
        if any(tensor.is_nested for tensor in self._inputs):
            raise RefusedError("is given a nested tensor, whose sizes are not known without asking it")
        self._output_facts.check(parts.program, self._slots, self.modes)
        self._check_autocast(parts)
        if any(slot < 0 for slot in self._slots):
            raise RefusedError("returns a tensor that no op made")
        if parts.left:
            raise RefusedError(f"leaves a new tensor in {parts.left[0]}, which a replay would not: return it instead")
        if parts.stale and set(parts.stale) <= states_set(parts.program):
            raise RefusedError("was recorded while another thread drew random numbers", passing=True)
        if parts.stale:
            raise RefusedError(f"reads a tensor that nobody has after the call ({parts.stale[0]})")
        if reads_old_gradients(parts.program):
            raise RefusedError("uses gradients that the call before left, and clears them: step after the backward")

    def _check_autocast(self, parts: Parts) -> None:
        """Casts that autocast keeps for later calls are found there by eager, and not by a replay."""
        if not self._autocast[0] or not torch.is_autocast_cache_enabled():
            return
        program = parts.program
        kept = {slot for slot, tensor in parts.tensors.items() if tensor.is_leaf and tensor.requires_grad}
        cast = {arg.slot for op in program.ops if op.name in _CASTS for arg in op.args[:1] if isinstance(arg, Ref)}
        if cast & kept:
            raise RefusedError(
                "has parameters cast by an autocast that was entered outside of it, whose cache other calls share: "
                "enter autocast inside of the function, or with cache_enabled=False"
            )
        seen = None if self._followed is None else self._bumps
        for slot, tensor in parts.tensors.items():
            known = seen is None or id(tensor) in seen or program.slots[slot].role in ("input", "gradient")
            if not known and tensor.dtype == self._autocast[1]:
                raise RefusedError("uses a tensor of autocast's cache: enter autocast inside of the function")

    def _check_writes(self, parts: Parts, native: _graphs.StaticProgram, options: GraphOptions) -> None:
        written = native.written_inputs
        if self.modes.grad and any(self._inputs[index].requires_grad for index in written):
            raise RefusedError("writes to an input that requires a gradient")
        if any(internal_overlap(self._inputs[index]) == OVERLAPS for index in written):
            raise RefusedError("writes to an input of which several elements lie in one place (expand())")
        storages = written_storages(parts.program)
        for slot, tensor in parts.tensors.items():
            if parts.program.slots[slot].storage in storages and internal_overlap(tensor) == OVERLAPS:
                raise RefusedError("writes to a tensor of which several elements lie in one place (expand())")
        if self.derivatives is not None:
            if self.derivatives.ambiguous:
                raise RefusedError("differentiates by two tensors that lie on the same memory")
            if self._followed is not None and self._followed.generators:
                raise RefusedError("draws from a generator of its own, and has results that require a gradient")
            self._check_that_it_can_run_again(parts, native)
        if options.mutation == "skip" and written:
            names = ", ".join(parts.program.inputs[index].name for index in written)
            raise RefusedError(f"writes to its inputs ({names}), and mutation='skip' was asked for")

    def _replay(
        self, program: Program, native: _graphs.StaticProgram, options: GraphOptions, fixed: list[bool]
    ) -> _graphs.Replay:
        """A replay with its first graphs, so that an op that cannot be bound is found now, not at a replay."""
        name = program.provenance.function
        over = _over(name)
        if self._lines:  # the function itself is generated code
            line = output_line(program, self._lines)
            over = _over(f"{name.partition(' (')[0]}{f' ({line})' if line else ''}")
        replay = _graphs.Replay(native, name, options.held, _BRANCHES, options.exact, over, fixed, options.cores)
        try:
            replay.make_first(self._inputs)
        except RuntimeError as error:
            raise RefusedError(f"has an op that cannot be bound to fixed memory: {error}") from None
        return replay

    def _guards(self, after: PythonGuards | None) -> PythonGuards | None:
        if self._followed is None:
            return None
        self.signature.set_asked(self._followed.questions, self._followed.identities)
        assert self._followed.sealed is not None
        return PythonGuards(self._followed.sealed, after)

    def _check_that_it_can_run_again(self, parts: Parts, native: Any) -> None:
        """For a backward other than the recorded one: it runs the forward again, on what that left."""
        if native.written_inputs:
            raise RefusedError("writes to its inputs and has results that require a gradient")
        program = parts.program
        forward = program.ops[: op_index(program, self._boundary)]
        own = {program.slots[slot].storage for slot in parts.tensors}
        if own & read_and_written(program, forward):
            raise RefusedError("reads and writes its own state, and has results that require a gradient")

    def _native(self, parts: Parts, options: GraphOptions) -> Any:
        program = parts.program
        inputs = [each.slot for each in program.inputs]
        gradients = [] if self.derivatives is None else self.derivatives.gradient_slots
        apart = {*inputs, *gradients} - parts.also  # what the function holds itself keeps its address
        try:
            return _graphs.StaticProgram(
                slots=program.slots,
                ops=program.ops,
                kept=parts.kept,
                tensors={slot: tensor for slot, tensor in parts.tensors.items() if slot not in apart},
                inputs=inputs,
                outputs=self._slots,
                segments=self._segments(program),
                bindings=program.bindings,
                boundary=op_index(program, self._boundary),
                held_gradients=held_gradients(parts),
                elides=not options.inductor,  # whose kernels know tensors as the program does
                bumps=self._bumps_of(parts),
            )
        except _graphs.NotStaticError as error:
            op = program.ops[error.op] if error.op < len(program.ops) else None
            line = op_line(program, op, self._lines) if op is not None else ""
            raise RefusedError(f"cannot run on fixed memory: {error}{f' ({line})' if line else ''}") from None
        except RuntimeError as error:
            raise RefusedError(f"cannot be made a graph: {error}") from None

    def _begins(self, program: Program) -> list[int]:
        """The ops that the segments of the backward begin with."""
        if self.derivatives is None:
            return []
        return [op_index(program, segment.begin) for segment in self.derivatives.segments]

    def _segments(self, program: Program) -> list[tuple[int, list[int], list[int]]]:
        if self.derivatives is None:
            return []
        pairs = zip(self._begins(program), self.derivatives.segments, strict=True)
        return [(begin, segment.gradient_slots, segment.derivative_slots) for begin, segment in pairs]

    def _bumps_of(self, parts: Parts) -> dict[int, int]:
        tensors = dict(parts.tensors)
        tensors.update((each.slot, leaf) for each, leaf in zip(parts.program.inputs, self._leaves, strict=True))
        return {slot: self._bumps[id(tensor)] for slot, tensor in tensors.items() if id(tensor) in self._bumps}


def _has_memory(tensor: torch.Tensor) -> bool:
    """Whether a tensor has memory of its own: no transform and no subclass wraps it around others."""
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout == torch.strided
    return plain and not is_functorch_wrapper(tensor)


def _rebuilt(results: Structure, tensors: list[torch.Tensor], call: tuple[Any, ...]) -> Any:
    return results.rebuild(tensors, other_objects(call[0], call[1]))


def _is_simple(shape: Any) -> bool:
    """Whether the engine can build it itself: a tensor, or plain containers of tensors and constants."""
    kind = type(shape)
    if kind is TensorLeaf:
        return True
    if kind in (tuple, list):
        return all(map(_is_simple, shape))
    if kind is dict:
        return all(map(_is_simple, shape.values()))
    return kind in (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)


def _over(function: str) -> str:
    return (
        f"This tensor is an output of {function} of a step that torchreel.mark_step_begin() has ended, and its memory "
        "is used again: keep a copy with clone() before the step ends, or graph the function with held='copy'."
    )
