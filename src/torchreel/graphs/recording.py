"""One call of a function, recorded: what it gave, and the way to do the same again without Python."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch._subclasses.schema_check_mode  # which torch imports where modes are switched off for a while

from torchreel import _graphs, _tape
from torchreel.errors import TapeError
from torchreel.graphs.derivatives import Derivatives, Pattern, differentiate, owners_of
from torchreel.graphs.joined import Joint, leaves_for
from torchreel.graphs.options import GraphOptions
from torchreel.graphs.refusal import RefusedError
from torchreel.graphs.watch import Watch
from torchreel.graphs.watch_calls import functions_run
from torchreel.program.model import Program, Ref, Tree
from torchreel.program.source_frames import source_line
from torchreel.program.writes import read_and_written, written_storages
from torchreel.tape.captured import Captured, Parts
from torchreel.tape.fitting import MisfitError, fit
from torchreel.tape.names import reachable
from torchreel.tape.session import Session
from torchreel.tape.structure import Place, Structure
from torchreel.tape.trace import described

if TYPE_CHECKING:
    from torchreel.graphs.lowering import Lowering

_numbers = itertools.count(1)
_BRANCHES = 8  # graphs of one recording in one thread, before outputs are copied
_COMMON = (torch.Tensor, bool, int, float, complex, str, bytes, type(None), tuple, list, dict)
# What the first trace of a process has to do once is done here, so that the first recording takes milliseconds.
_tape.use_wrappers(True)


@dataclass
class Recording:
    """A way, and what people may want to know of it."""

    way: Any  # _graphs.Way
    number: int
    signature: str
    program: Program
    parts: Parts
    watch: Watch | None  # None where another guards the function
    derivatives: Derivatives | None
    lowering: Lowering | None = None  # where Inductor is asked for kernels

    def line(self, op: int) -> str:
        """The source line of an op, or nothing."""
        ops = self.program.ops
        return source_line(self.program, ops[op]) if 0 <= op < len(ops) else ""

    def output_line(self) -> str:
        """The source line that made the first output, or the function."""
        refs = set(_refs(self.program.outputs))
        made = [op for op in self.program.ops if refs & {each.slot for each in op.results if isinstance(each, Ref)}]
        line = source_line(self.program, made[-1]) if made else ""
        return line or self.program.provenance.function

    def op_name(self, op: int) -> str:
        return self.program.ops[op].name if 0 <= op < len(self.program.ops) else "an op"


class Take:
    """One call under capture. What it gives is `result`; whether a way comes of it, `recording()` tells."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._function = function
        self.modes = _graphs.Modes.now()
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
        session = self._session
        try:
            with functions_run() as self._calls:
                result = self._function(*args, **kwargs)
            self._results = Structure(result, _objects(args, kwargs))
            self._boundary = session.capture.op_count
            self.derivatives, self.refusal = None, ""
            owners: list[torch.Tensor] = []
            if self.modes.grad:
                owners = owners_of(session, inputs)
                try:
                    self.derivatives = differentiate(session, inputs, owners, self._results.tensors, pattern)
                except RefusedError as refusal:
                    self.refusal = str(refusal)
        except BaseException:
            session.end([])
            raise
        outputs = list(self._results.tensors)
        asked = [] if self.derivatives is None else self.derivatives.tensors()
        slots = session.end([*outputs, *asked])
        self._slots, asked_slots = slots[: len(outputs)], slots[len(outputs) :]
        if self.derivatives is not None:
            self.derivatives.take_slots(asked_slots)
        function = self._function
        self._captured = Captured(
            session, self._given, self._results, self._slots, described(self._function),
            lambda: reachable(function),
        )  # fmt: skip
        if joins:
            return self._results.rebuild(_joined(outputs, owners, inputs, self._inputs), _objects(args, kwargs))
        return result

    def recording(
        self,
        options: GraphOptions,
        again: Callable[..., Any],
        after: Watch | None,
        fixed: Sequence[bool] | None,
        inputs_move: bool,
    ) -> Recording:
        """Raises RefusedError. `fixed`: see Graphed; `inputs_move`: see CallKind."""
        if self.refusal:
            raise RefusedError(self.refusal)
        try:
            parts = self._captured.parts(lines=False)
        except TapeError as error:
            raise RefusedError(f"cannot be put on a tape: {error}") from None
        if inputs_move:
            parts.also.clear()
        self._check_what_is_left(parts)
        native = self._native(parts, options)
        self._check_writes(parts, native, options)
        route = self._route(parts.program, native, options, list(fixed or ()))
        watch = self._watch(after) if fixed is None else None
        number = next(_numbers)
        program = parts.program
        shape, rebuild = self._results.shape, None
        if not _is_simple(shape):
            shape, rebuild = None, functools.partial(_rebuilt, self._results)
        way = _graphs.Way(
            self.signature, self.modes, route, None if watch is None else watch.native, shape, Place, rebuild, number
        )
        if self.derivatives is not None:
            self.derivatives.attach(way, program, parts.tensors, again)
        self.signature.forget_example()
        lowering = None
        if options.inductor:
            from torchreel.graphs.lowering import Lowering

            lowering = Lowering(program, native, route, self.modes.threads, options)
        return Recording(way, number, str(self.signature), program, parts, watch, self.derivatives, lowering)

    def _check_what_is_left(self, parts: Parts) -> None:
        """A replay leaves nothing in Python, and finds what the recorded call found."""
        if parts.refusal:
            raise RefusedError(f"cannot be replayed: {parts.refusal}")
        if self._session.scheduled:
            raise RefusedError("steps a scheduler of the learning rate: call scheduler.step() outside of it")
        if any(tensor.is_nested for tensor in self._inputs):
            raise RefusedError("is given a nested tensor, whose sizes are not known without asking it")
        if any(slot < 0 for slot in self._slots):
            raise RefusedError("returns a tensor that no op made")
        if parts.left:
            raise RefusedError(f"leaves a new tensor in {parts.left[0]}, which a replay would not: return it instead")
        if parts.stale:
            raise RefusedError(f"reads a tensor that nobody has after the call ({parts.stale[0]})")
        if _reads_old_gradients(parts.program):
            raise RefusedError("uses gradients that the call before left, and clears them: step after the backward")

    def _check_writes(self, parts: Parts, native: _graphs.Recording, options: GraphOptions) -> None:
        written = native.written_inputs
        if self.modes.grad and any(self._inputs[place].requires_grad for place in written):
            raise RefusedError("writes to an input that requires a gradient")
        if self.derivatives is not None:
            self._check_that_it_can_run_again(parts, native)
        if options.mutation == "skip" and written:
            names = ", ".join(parts.program.inputs[place].name for place in written)
            raise RefusedError(f"writes to its inputs ({names}), and mutation='skip' was asked for")

    def _route(
        self, program: Program, native: _graphs.Recording, options: GraphOptions, fixed: list[bool]
    ) -> _graphs.Route:
        """With its first graphs, so that an op that cannot be bound is known now and not at a replay."""
        name = program.provenance.function
        route = _graphs.Route(native, name, options.held, _BRANCHES, options.exact, _over(name), fixed, options.cores)
        try:
            route.make_first(self._inputs)
        except RuntimeError as error:
            raise RefusedError(f"has an op that cannot be bound to fixed memory: {error}") from None
        return route

    def _watch(self, after: Watch | None) -> Watch:
        found = [step.optimizer() for step in self._session.steps]
        optimizers = [one for one in found if one is not None]
        return Watch(self._function, self._session.capture.modules(), optimizers, self._calls, after)

    def _check_that_it_can_run_again(self, parts: Parts, native: Any) -> None:
        """For a backward that is not the recorded one, which begins with what the forward has left."""
        if native.written_inputs:
            raise RefusedError("writes to its inputs and has results that require a gradient")
        program = parts.program
        forward = program.ops[: _place(program, self._boundary)]
        own = {program.slots[slot].storage for slot in parts.tensors}
        if own & read_and_written(program, forward):
            raise RefusedError("reads and writes its own state, and has results that require a gradient")

    def _native(self, parts: Parts, options: GraphOptions) -> Any:
        program = parts.program
        inputs = [each.slot for each in program.inputs]
        gradients = [] if self.derivatives is None else self.derivatives.gradient_slots
        apart = {*inputs, *gradients} - parts.also  # what the function has by itself stays in its place
        try:
            return _graphs.Recording(
                slots=program.slots,
                ops=program.ops,
                kept=parts.kept,
                tensors={slot: tensor for slot, tensor in parts.tensors.items() if slot not in apart},
                inputs=inputs,
                outputs=self._slots,
                gradients=gradients,
                derivatives=[] if self.derivatives is None else self.derivatives.derivative_slots,
                bindings=program.bindings,
                boundary=_place(program, self._boundary),
                held_gradients=_held_gradients(parts),
                elides=not options.inductor,  # whose kernels know tensors as the program does
            )
        except _graphs.NotStaticError as error:
            op = program.ops[error.op] if error.op < len(program.ops) else None
            line = source_line(program, op) if op is not None else ""
            raise RefusedError(f"cannot run on fixed memory: {error}{f' ({line})' if line else ''}") from None
        except RuntimeError as error:
            raise RefusedError(f"cannot be made a graph: {error}") from None


def _place(program: Program, recorded: int) -> int:
    """Where the op stands that was the `recorded`-th of the trace, now that some have been inserted."""
    count = 0
    for place, op in enumerate(program.ops):
        if count >= recorded:
            return place
        count += not op.inserted
    return len(program.ops)


def _joined(
    outputs: list[torch.Tensor], owners: list[torch.Tensor], leaves: list[torch.Tensor], inputs: list[torch.Tensor]
) -> list[torch.Tensor]:
    """The outputs, as results of the inputs instead of the leaves that stood for them."""
    originals = {id(leaf): tensor for leaf, tensor in zip(leaves, inputs, strict=True)}
    outputs = [originals.get(id(output), output) for output in outputs]
    places = [place for place, output in enumerate(outputs) if output.grad_fn is not None and output.requires_grad]
    places = [place for place in places if all(outputs[place] is not tensor for tensor in inputs)]
    if places:
        joint = Joint([outputs[place] for place in places], owners)
        found = joint.connected([originals.get(id(owner), owner) for owner in owners])
        for place, output in zip(places, found, strict=True):
            outputs[place] = output
    return outputs


def _reads_old_gradients(program: Program) -> bool:
    """Whether a tensor that has no name looks like the gradient that a tensor had before the function cleared it.

    One that the function writes is something else: a bucket of DistributedDataParallel, for example.
    """
    slots = program.slots
    cleared = {
        (slots[one.owner].dtype, slots[one.owner].sizes)
        for one in program.bindings
        if one.kind == "grad" and one.cleared
    }
    unknown = [slot for slot in slots if slot.role == "captured" and slot.name.startswith("captured_")]
    written = written_storages(program)
    unknown = [slot for slot in unknown if slot.storage not in written]
    return any((slot.dtype, slot.sizes) in cleared for slot in unknown)


def _held_gradients(parts: Parts) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Gradients that the function finds in their place, each with the tensor that it is of."""
    wanted = {
        id(tensor): tensor for slot, tensor in parts.tensors.items() if parts.program.slots[slot].role == "gradient"
    }
    owners = [tensor for tensor in parts.tensors.values() if tensor.is_leaf and tensor.requires_grad]
    held = [(owner, owner.grad) for owner in owners if owner.grad is not None and id(owner.grad) in wanted]
    if len(held) < len(wanted):
        raise RefusedError("finds a gradient of a tensor that it does not use: clear gradients within it")
    return held


def _objects(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Arguments that are neither tensors nor plain: a function may return one, such as a cache that it filled."""
    return [one for one in (*args, *kwargs.values()) if not isinstance(one, _COMMON)]


def _rebuilt(results: Structure, tensors: list[torch.Tensor], call: tuple[Any, ...]) -> Any:
    return results.rebuild(tensors, _objects(call[0], call[1]))


def _is_simple(shape: Any) -> bool:
    """Whether the engine can build it itself: a tensor, or plain containers of tensors and constants."""
    kind = type(shape)
    if kind is Place:
        return True
    if kind in (tuple, list):
        return all(map(_is_simple, shape))
    if kind is dict:
        return all(map(_is_simple, shape.values()))
    return kind in (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)


def fit_objects(signature: _graphs.Signature, given: Structure) -> None:
    """Have tensors found that are inside of objects. One without any is known by itself."""
    if signature.is_plain or signature.tensors == len(given.tensors):
        return
    shape = given.shape

    def tensors_of(*args: Any, **kwargs: Any) -> list[torch.Tensor] | None:
        try:
            return fit(shape, (args, kwargs))
        except MisfitError:
            return None

    signature.set_fit(tensors_of, given.tensors)


def _refs(tree: Tree) -> Iterator[int]:
    if isinstance(tree.leaf, Ref):
        yield tree.leaf.slot
    for part in tree.parts:
        yield from _refs(part)


def _over(function: str) -> str:
    return (
        f"This tensor is an output of {function} of a step that torchreel.mark_step_begin() has ended, and its memory "
        "is used again: keep a copy with clone() before the step ends, or graph the function with held='copy'."
    )
