"""`verify=N`: a call that is replayed and run eagerly, and what to say if the two differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from torchreel.errors import VerifyError
from torchreel.graphs.recording import Recording
from torchreel.graphs.state import State
from torchreel.program.model import Digest, Op
from torchreel.program.source_frames import source_line
from torchreel.tape.quiet import quietly
from torchreel.tape.structure import Structure
from torchreel.tape.tape import Tape
from torchreel.tape.trace import trace

if TYPE_CHECKING:
    from torchreel.graphs.entry import Graphed


def verified(graphed: Graphed, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Replays, puts everything back, and runs the function itself, whose results are given. Raises VerifyError."""
    function = graphed.__wrapped__
    recording = graphed.recording_for(args, kwargs)
    if recording is None:
        return graphed.unverified(args, kwargs)
    inputs = Structure((args, kwargs)).tensors
    before = State(recording, inputs)
    replayed = _copies(graphed.unverified(args, kwargs))
    left = State(recording, inputs)
    before.put_back()
    result = function(*args, **kwargs)
    expected = _copies(result)
    now = State(recording, inputs)
    same = _same if graphed.exact else _near
    if len(replayed) == len(expected) and all(map(same, replayed, expected)) and _same_state(left, now, same):
        return result
    before.put_back()
    raise VerifyError(_difference(graphed, recording, before, args, kwargs))


def _copies(result: Any) -> list[torch.Tensor]:
    with quietly():
        return [tensor.detach().clone() for tensor in Structure(result).tensors]


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
        return [tensor._indices(), tensor._values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return [tensor]


def _same_values(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.is_floating_point() or a.is_complex():
        return bool(torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)) and torch.equal(a.isnan(), b.isnan()))
    return bool(torch.equal(a, b))


def _near(a: torch.Tensor | None, b: torch.Tensor | None) -> bool:
    """With exact=False: what has added up of differences in the last bits of each op."""
    if a is None or b is None or a.shape != b.shape or a.dtype != b.dtype or not a.is_floating_point():
        return _same(a, b)
    with quietly():
        return bool(torch.allclose(a, b, rtol=max(1e-3, 8 * torch.finfo(a.dtype).eps), atol=1e-4, equal_nan=True))


def _same_state(a: State, b: State, same: Callable[..., bool]) -> bool:
    return (
        all(map(same, a.values, b.values))
        and all(map(same, a.gradient_values, b.gradient_values))
        and bool(torch.equal(a.drawn, b.drawn))
    )


def _difference(
    graphed: Graphed, recording: Recording, before: State, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> str:
    name = graphed.name
    now = trace(graphed.__wrapped__, *args, hashes=True, **kwargs)
    before.put_back()
    inputs = Structure((args, kwargs)).tensors
    _, digests = Tape(recording.parts).run(inputs, digests=True)
    before.put_back()
    for place, op in enumerate(now.program.ops):
        if place >= len(recording.program.ops):
            return _sentence(name, now, op, "is not in the recording at all")
        recorded = recording.program.ops[place]
        if recorded.name != op.name:
            return _sentence(name, now, op, f"is where {recorded.name} was recorded")
        if not _same_digests(op.digests, digests[place]):
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
        "what is watched with torchreel.graphs.status()."
    )
