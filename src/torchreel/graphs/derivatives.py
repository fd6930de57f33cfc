"""The backward of a recorded call: taken on the same tape as its forward, from which it is split."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from torchreel import _graphs
from torchreel.graphs.gradient_parts import GradientParts
from torchreel.graphs.refusal import RefusedError
from torchreel.program.model import Program, Ref
from torchreel.tape.quiet import quietly
from torchreel.tape.session import Session

# How the gradients of the outputs come in: (sizes, strides) for each output that has one.
Pattern = tuple[tuple[tuple[int, ...], tuple[int, ...]] | None, ...]


class Derivatives:
    def __init__(
        self, outputs: list[int], gradients: list[torch.Tensor], owners: list[torch.Tensor],
        derivatives: list[torch.Tensor | None],
    ) -> None:  # fmt: skip
        self.outputs = outputs  # places among the results
        self._gradients = gradients
        self._owners = owners  # one for each derivative: parts of one gradient have the same
        self._derivatives = derivatives

    def tensors(self) -> list[torch.Tensor]:
        """Those whose slots are wanted."""
        return [*self._gradients, *self._owners, *(each for each in self._derivatives if each is not None)]

    def take_slots(self, slots: list[int]) -> None:
        gradients, owners = len(self._gradients), len(self._owners)
        self.gradient_slots = slots[:gradients]
        self.owner_slots = slots[gradients : gradients + owners]
        self.ambiguous = len(set(self.owner_slots)) < len({id(owner) for owner in self._owners})
        rest = iter(slots[gradients + owners :])
        self.derivative_slots = [-1 if each is None else next(rest) for each in self._derivatives]
        self._owners, self._derivatives = [], []  # gradients stay, so that they do not look like the function's own

    def attach(self, way: Any, program: Program, tensors: dict[int, torch.Tensor], again: Callable[..., Any]) -> None:
        reads = {
            value.slot
            for op in program.ops
            if op.backward
            for value in _refs(op.args)
            if value.slot in tensors and program.slots[value.slot].role in ("parameter", "buffer", "captured")
        }
        self._gradients = []
        way.differentiate(self.outputs, self.owner_slots, sorted(reads - set(self.gradient_slots)), again)


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
    outputs = [place for place, one in enumerate(results) if one.requires_grad and id(one) not in known]
    if not outputs:
        return None
    _check(session, inputs, [results[place] for place in outputs])
    wanted = [results[place] for place in outputs]
    python = _graphs.python_in_backward(wanted)
    if python:  # it would run here for nobody, and at a replay not at all
        raise RefusedError(f"has a backward that runs Python: {python}. Run the backward inside of the function")
    with quietly():
        gradients = [gradient_for(tensor, pattern, place) for place, tensor in enumerate(wanted)]
        drawn = torch.get_rng_state()
    try:
        parts = GradientParts(wanted, owners)
        found = parts.run(wanted, gradients, retain_graph=True)
    except Exception as error:  # such as one that asks for gradients of a certain form
        raise RefusedError(f"has a backward that cannot be recorded: {error}") from None
    with quietly():
        torch.set_rng_state(drawn)
    return Derivatives(outputs, gradients, [owners[place] for place in parts.places], found)


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
    separate = _graphs.separate_outputs(outputs, _keeps_tensors) if len(outputs) > 1 else ""
    if separate:
        raise RefusedError(f"{separate}: run the backward inside of the function, or detach() what needs none")


def _keeps_tensors(node: Any) -> bool:
    """Whether a node of autograd keeps tensors, which a backward frees."""
    names = (name.removeprefix("_raw") for name in dir(node) if name.startswith("_raw_saved_"))
    return any(getattr(node, name) is not None for name in names)


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata) if tensor.layout == torch.strided else id(tensor)


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


def _layout(pattern: Pattern | None, place: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    return None if pattern is None or place >= len(pattern) else pattern[place]


def gradient_for(tensor: torch.Tensor, pattern: Pattern | None, place: int) -> torch.Tensor:
    """Ones, as the gradient of an output that lies as it usually comes."""
    layout = _layout(pattern, place)
    if layout is None:
        return torch.ones_like(tensor)
    sizes, strides = layout
    return torch.empty_strided(sizes, strides, dtype=tensor.dtype).fill_(1)
