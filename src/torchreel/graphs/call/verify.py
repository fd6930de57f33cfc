"""`verify=N`: a call that is replayed and run eagerly, and what to say if the two differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from torchreel import _core
from torchreel._torch.tensors import sparse_indices, sparse_values
from torchreel.errors import TapeError, VerifyError, first_line
from torchreel.graphs.call.state import State
from torchreel.graphs.record.derivatives import Pattern, gradient_for
from torchreel.graphs.record.gradient_parts import GradientParts
from torchreel.graphs.record.joined import leaves_for
from torchreel.graphs.record.recorded_call import RecordedCall
from torchreel.program.model import Digest, Op
from torchreel.program.query.source_frames import source_line
from torchreel.tape.capture.trace import trace
from torchreel.tape.quiet import quietly
from torchreel.tape.structure import Structure
from torchreel.tape.tape import Tape

if TYPE_CHECKING:
    from torchreel.graphs.call.entry import Graphed


def verified(graphed: Graphed, recording: RecordedCall | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Replays, puts everything back, and runs the function itself, whose results are given.

    A difference is a VerifyError; while a reel is recorded it is a mark there, and the graph is not used again.
    """
    function = graphed.__wrapped__
    if recording is None:
        return graphed.unverified(args, kwargs)
    structure = Structure((args, kwargs))
    inputs = structure.tensors
    # Gradients that are only compared must not be seen by what made the inputs, nor by their hooks.
    alone = leaves_for(inputs, and_hooked=True) if recording.derivatives is not None else inputs
    apart = any(one is not tensor for one, tensor in zip(alone, inputs, strict=True))
    tried, named = structure.rebuild(alone) if apart else (args, kwargs)
    before = State(recording, inputs)
    pattern = graphed.pattern_of(recording)
    hits = recording.entry.replay.hits
    given = graphed.unverified(tried, named)
    if recording.entry.replay.hits == hits:  # it was not this recording that ran, or none
        if not apart:
            return given
        before.put_back()
        return function(*args, **kwargs)
    try:
        replayed = [*_copies(given), *_derivatives(pattern, recording, given, alone)]
        left = State(recording, inputs)
    except Exception as error:  # of a kind of tensor that cannot be compared
        before.put_back()
        graphed.retire(recording, f"Its results cannot be compared: {type(error).__name__}: {first_line(error)}")
        return function(*args, **kwargs)
    del given
    before.put_back()
    try:
        result = function(*tried, **named)
    except BaseException:  # where the replay did not fail
        graphed.retire(recording, "It raises an error, and its graph does not.")
        raise
    same = _same if graphed.exact else _near
    incomparable = ""
    try:
        expected = [*_copies(result), *_derivatives(pattern, recording, result, alone)]
        now = State(recording, inputs)
        equal = len(replayed) == len(expected) and all(map(same, replayed, expected)) and _same_state(left, now, same)
    except Exception as error:
        equal, incomparable = False, f"{type(error).__name__}: {first_line(error)}"
    if equal:
        graphed.is_sound(recording)
    elif incomparable:
        graphed.retire(recording, f"Its results cannot be compared: {incomparable}")
    if equal or incomparable:
        if not apart:
            return result
        before.put_back()
        return function(*args, **kwargs)
    before.put_back()
    why = _difference(graphed, recording, before, args, kwargs)
    graphed.retire(recording, why)
    if not _core.recording():
        raise VerifyError(why)
    _core.mark(why)
    return function(*args, **kwargs)


def _copies(result: Any) -> list[torch.Tensor]:
    with quietly():
        return [tensor.detach().clone() for tensor in Structure(result).tensors]


def _derivatives(
    pattern: Pattern | None, recording: RecordedCall, result: Any, inputs: list[torch.Tensor]
) -> list[torch.Tensor | None]:
    """The derivatives of the results for gradients of the recorded form. The results can be used afterwards."""
    derivatives = recording.derivatives
    if derivatives is None or not torch.is_grad_enabled():
        return []
    outputs = Structure(result, unique=True).tensors
    all_found: list[torch.Tensor | None] = []
    for segment in derivatives.segments:
        wanted = [outputs[index] for index in segment.outputs]
        owners = [recording.owner(slot, inputs) for slot in dict.fromkeys(segment.owner_slots)]
        cuts = [outputs[index] for index in dict.fromkeys(segment.cuts)]
        with quietly():
            gradients = [gradient_for(one, pattern, index) for one, index in zip(wanted, segment.indices, strict=True)]
            for gradient in gradients:
                if 0 in gradient.stride():  # one number for all
                    continue
                gradient.copy_((torch.arange(gradient.numel()) % 7 - 3).view(gradient.shape) / 4)
        found = _segment_derivatives(wanted, owners, cuts, gradients)
        all_found += [None if one is None else one.detach().clone() for one in found]
    return all_found


def _segment_derivatives(
    outputs: list[torch.Tensor], owners: list[torch.Tensor], cuts: list[torch.Tensor], gradients: list[torch.Tensor]
) -> list[torch.Tensor | None]:
    """The derivatives of one segment. It ends at the cuts, where other segments begin."""
    if not cuts:
        return list(torch.autograd.grad(outputs, owners, gradients, retain_graph=True, allow_unused=True))
    return GradientParts(outputs, owners, cuts).run(outputs, gradients, retain_graph=True)


def _same(a: torch.Tensor | None, b: torch.Tensor | None) -> bool:
    if a is None or b is None:
        return a is b
    if a.shape != b.shape or a.dtype != b.dtype or a.layout != b.layout:
        return False
    with quietly():
        return all(map(_same_values, _dense_parts(a), _dense_parts(b)))


def _dense_parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """What a sparse tensor is made of; another one itself."""
    if tensor.layout == torch.sparse_coo:
        return [sparse_indices(tensor), sparse_values(tensor)]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return [tensor]


def _same_values(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.is_complex():
        a, b = torch.view_as_real(a.resolve_conj()), torch.view_as_real(b.resolve_conj())
    if bool(torch.equal(a, b)):
        return True
    if not a.is_floating_point():
        return False
    differ = a.float() != b.float() if a.element_size() < 4 else a != b
    return bool((differ & ~(a.isnan() & b.isnan())).sum() == 0)  # a NaN is a NaN, whatever its bits


def _near(a: torch.Tensor | None, b: torch.Tensor | None) -> bool:
    """For exact=False: whether they differ by no more than the rounding errors of each op can add up to."""
    if a is None or b is None or a.shape != b.shape or a.dtype != b.dtype or not a.is_floating_point():
        return _same(a, b)
    with quietly():
        return bool(torch.allclose(a, b, rtol=max(1e-3, 8 * torch.finfo(a.dtype).eps), atol=1e-4, equal_nan=True))


def _same_state(a: State, b: State, same: Callable[..., bool]) -> bool:
    return (
        all(map(same, a.values, b.values))
        and all(map(same, a.gradient_values, b.gradient_values))
        and all(map(torch.equal, a.drawn, b.drawn))
    )


def _difference(
    graphed: Graphed, recording: RecordedCall, before: State, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> str:
    name = graphed.name
    try:
        now = trace(graphed.__wrapped__, *args, hashes=True, trust=True, **kwargs)
    except TapeError:  # another thread makes a tape at this moment
        return f"{name} gives other values than its graph."
    before.put_back()
    inputs = Structure((args, kwargs)).tensors
    _, digests = Tape(recording.parts).run(inputs, digests=True)
    before.put_back()
    for index, op in enumerate(now.program.ops):
        if index >= len(recording.program.ops):
            return _sentence(name, now, op, "is not in the recording at all")
        recorded = recording.program.ops[index]
        if recorded.name != op.name:
            return _sentence(name, now, op, f"is where {recorded.name} was recorded")
        if not _same_digests(op.digests, digests[index]):
            return _sentence(name, now, op, "gives other values")
        if _plain(op) != _plain(recorded):
            return _sentence(name, now, op, "has other arguments than it was recorded with")
    return (
        f"{name} gives other values than its graph, and each op by itself gives the same: please report this, with the "
        "function."
    )


def _plain(op: Op) -> list[Any]:
    return [arg for arg in op.args if isinstance(arg, bool | int | float | str)]


def _same_digests(a: list[Digest | None] | None, b: list[Digest | None] | None) -> bool:
    if a is None or b is None:
        return True
    return [one and one.hash for one in a] == [one and one.hash for one in b]


def _sentence(name: str, tape: Tape, op: Op, what: str) -> str:
    line = source_line(tape.program, op)
    where = f"{op.name}{f' ({line})' if line else ''}"
    return (
        f"The graph of {name} no longer does what the function does: the first op that parts is {where}, which {what}. "
        "Something that the function reads in Python has changed without being seen: pass it as an argument, or see "
        "what is guarded with torchreel.graphs.status()."
    )
