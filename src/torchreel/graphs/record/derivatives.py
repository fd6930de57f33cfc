"""The backward of a recorded call: taken on the same tape as its forward, from which it is split."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from torchreel import _graphs
from torchreel._torch.autograd import saved_names
from torchreel._torch.tensors import storage_address
from torchreel.graphs.record.gradient_parts import GradientParts
from torchreel.graphs.refusal import RefusedError
from torchreel.program.model import Program, Ref
from torchreel.tape.capture.session import Session
from torchreel.tape.quiet import quietly

_INSTEAD = "run the backward inside of the function, or detach() what needs none"

# How the gradients of the outputs come in: (sizes, strides) for each output that has one.
Pattern = tuple[tuple[tuple[int, ...], tuple[int, ...]] | None, ...]


@dataclass
class Segment:
    """A part of the backward that one node of autograd stands for."""

    indices: list[int]  # of its outputs, among all that have a gradient
    outputs: list[int]  # indices of the same among the results
    cuts: list[int]  # indices among the results: its derivatives by outputs of other segments, one for each part
    frees: bool  # whether it saves tensors, which autograd frees after the backward
    begin: int  # the first op, as the trace counts them
    gradients: list[torch.Tensor]
    owners: list[torch.Tensor]  # one for each other derivative: parts of one gradient have the same
    derivatives: list[torch.Tensor | None]  # by the owners, and then by the cuts
    gradient_slots: list[int] = field(default_factory=list)
    owner_slots: list[int] = field(default_factory=list)
    derivative_slots: list[int] = field(default_factory=list)

    def tensors(self) -> list[torch.Tensor]:
        """The tensors whose slots are needed."""
        return [*self.gradients, *self.owners, *(each for each in self.derivatives if each is not None)]

    def take_slots(self, slots: Iterator[int]) -> None:
        self.gradient_slots = [next(slots) for _ in self.gradients]
        self.owner_slots = [next(slots) for _ in self.owners]
        self.derivative_slots = [-1 if each is None else next(slots) for each in self.derivatives]


class Derivatives:
    """The whole backward: its segments, in the order in which autograd runs them."""

    def __init__(self, segments: list[Segment]) -> None:
        self.segments = segments

    def tensors(self) -> list[torch.Tensor]:
        """The tensors whose slots are needed."""
        return [tensor for segment in self.segments for tensor in segment.tensors()]

    def take_slots(self, slots: list[int]) -> None:
        rest = iter(slots)
        for segment in self.segments:
            segment.take_slots(rest)
        owners = {id(owner) for segment in self.segments for owner in segment.owners}
        self.ambiguous = len({slot for segment in self.segments for slot in segment.owner_slots}) < len(owners)
        for segment in self.segments:  # gradients stay, so that they do not look like the function's own
            segment.owners, segment.derivatives = [], []

    @property
    def gradient_slots(self) -> list[int]:
        return [slot for segment in self.segments for slot in segment.gradient_slots]

    def attach(
        self,
        entry: Any,
        program: Program,
        begins: list[int],
        tensors: dict[int, torch.Tensor],
        again: Callable[..., Any],
    ) -> None:
        """`begins`: the indices of the ops at which segments begin."""
        given = set(self.gradient_slots)
        for segment, begin, end in zip(self.segments, begins, [*begins[1:], len(program.ops)], strict=True):
            reads = {
                value.slot
                for op in (program.ops[begin:end] if len(begins) > 1 else program.ops)
                if op.backward
                for value in _refs(op.args)
                if value.slot in tensors and program.slots[value.slot].role in ("parameter", "buffer", "captured")
            }
            segment.gradients = []
            entry.differentiate(
                segment.outputs, segment.owner_slots, segment.cuts, sorted(reads - given), segment.frees, again
            )


def _refs(values: Iterable[Any]) -> Iterable[Ref]:
    for value in values:
        if isinstance(value, Ref):
            yield value
        elif isinstance(value, list):
            yield from _refs(value)


def differentiate(
    session: Session,
    inputs: list[torch.Tensor],
    owners: list[torch.Tensor],
    results: list[torch.Tensor],
    pattern: Pattern | None,
) -> Derivatives | None:
    """Run the backward of the results under the capture that is on, for its ops. Nothing if there is none to run."""
    if session.steps or session.capture.gradients():
        return None  # the function runs its own backward
    known = {id(tensor) for tensor in owners}
    # One that came from outside has its history already.
    outputs = [index for index, one in enumerate(results) if one.requires_grad and id(one) not in known]
    if not outputs:
        return None
    wanted = [results[index] for index in outputs]
    _check(session, inputs, wanted)
    segments = _segments(wanted, owners)
    python = _graphs.python_in_backward(wanted)
    if python:  # it would run here for nobody, and at a replay not at all
        raise RefusedError(f"has a backward that runs Python: {python}. Run the backward inside of the function")
    with quietly():
        gradients = [gradient_for(tensor, pattern, index) for index, tensor in enumerate(wanted)]
        drawn = torch.get_rng_state()
    recorded: list[Segment] = []
    for indices, cuts, reached, frees in segments:
        begin = session.capture.op_count
        leaves = [owners[index] for index in reached]
        tensors, given = [wanted[index] for index in indices], [gradients[index] for index in indices]
        try:
            parts = GradientParts(tensors, leaves, [wanted[index] for index in cuts])
            found = parts.run(tensors, given, retain_graph=True)
        except Exception as error:  # such as one that asks for gradients of a certain form
            raise RefusedError(f"has a backward that cannot be recorded: {error}") from None
        by_owners = [leaves[index] for index in parts.indices if index < len(leaves)]
        by_cuts = [outputs[cuts[index - len(leaves)]] for index in parts.indices if index >= len(leaves)]
        own = [outputs[index] for index in indices]
        recorded.append(Segment(indices, own, by_cuts, frees, begin, given, by_owners, found))
    with quietly():
        torch.set_rng_state(drawn)
    return Derivatives(recorded)


def _segments(
    outputs: list[torch.Tensor], owners: list[torch.Tensor]
) -> list[tuple[list[int], list[int], list[int], bool]]:
    """Places of outputs, of cuts and of owners, and whether it frees tensors, of each segment of the backward."""
    if len(outputs) == 1:
        return [([0], [], list(range(len(owners))), True)]
    segments = _graphs.segments_of(outputs, owners, _keeps_tensors)
    if isinstance(segments, str):
        raise RefusedError(f"{segments}: {_INSTEAD}")
    if len(segments) == 1:
        return [([*range(len(outputs))], [], [*range(len(owners))], True)]
    return segments


def inseparable(outputs: list[torch.Tensor], ends: list[torch.Tensor]) -> str:
    """Why there are no segments for outputs of a call whose arguments `ends` have a history; or nothing.

    A recording joins its own outputs to that history by one node for each segment, so this must be known before it.
    """
    known = {id(end) for end in ends}
    wanted = [one for one in outputs if one.requires_grad and one.grad_fn is not None and id(one) not in known]
    if len(wanted) < 2:
        return ""
    with quietly():
        leaves = [end.detach().requires_grad_() for end in ends]
    cut = _graphs.CutEdges(wanted, ends, leaves)
    cut.exchange()
    try:
        found = _graphs.segments_of(wanted, [], _keeps_tensors)
    finally:
        cut.exchange()
    return f"{found}: {_INSTEAD}" if isinstance(found, str) else ""


def _check(session: Session, inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> None:
    given = {_storage(tensor) for tensor in inputs}
    given |= {_storage(tensor) for _, tensor, _ in session.capture.externals()}
    for tensor in _others(session):
        if tensor.grad_fn is not None and tensor.requires_grad:
            raise RefusedError("uses a tensor of others that has a history (grad_fn): pass it as an argument")
    for output in outputs:
        if output.layout != torch.strided:
            raise RefusedError("returns a tensor without strides that requires a gradient")
        if output.grad_fn is None:
            raise RefusedError("returns a tensor that requires a gradient and has none to hand on")
        if _storage(output) in given:
            raise RefusedError("returns a view of an input or a parameter that requires a gradient")
    if len({_storage(output) for output in outputs}) < len(outputs):
        raise RefusedError("returns views of one tensor that require a gradient")


def _keeps_tensors(node: Any) -> bool:
    """Whether a node of autograd keeps tensors, which a backward frees."""
    return any(getattr(node, name) is not None for name in saved_names(node))


def _storage(tensor: torch.Tensor) -> int:
    return int(storage_address(tensor.untyped_storage())) if tensor.layout == torch.strided else id(tensor)


def _others(session: Session) -> list[torch.Tensor]:
    """Tensors that no op made and that are no inputs."""
    inputs = set(session.capture.input_slots)
    return [tensor for slot, tensor, _ in session.capture.externals() if slot not in inputs]


def owners_of(session: Session, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Inputs and other tensors whose gradient a backward gives."""
    found: dict[int, torch.Tensor] = {id(tensor): tensor for tensor in inputs if tensor.requires_grad}
    for tensor in _others(session):
        if tensor.requires_grad and (tensor.is_floating_point() or tensor.is_complex()):
            found.setdefault(id(tensor), tensor)
    return list(found.values())


def _layout(pattern: Pattern | None, index: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    return None if pattern is None or index >= len(pattern) else pattern[index]


def gradient_for(tensor: torch.Tensor, pattern: Pattern | None, index: int) -> torch.Tensor:
    """Ones, as the gradient of an output that lies as it usually comes."""
    layout = _layout(pattern, index)
    if layout is None:
        return torch.ones_like(tensor)
    sizes, strides = layout
    return torch.empty_strided(sizes, strides, dtype=tensor.dtype).fill_(1)
