"""`torchreel.trace` and `torchreel.tracing`: run a function once, and have it as a tape."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

import torch

from torchreel.errors import TraceError
from torchreel.tape.captured import Captured
from torchreel.tape.names import reachable, visible
from torchreel.tape.session import Session
from torchreel.tape.structure import Structure
from torchreel.tape.tape import Tape


def trace(
    function: Callable[..., Any], *args: Any, outplace: bool = False, hashes: bool = False, **kwargs: Any
) -> Tape:
    """Call the function, and give every op that it ran as a tape. What the call does, it does.

    With `outplace` the tape has the same program without mutation; with `hashes` it also knows the values of every
    op's output, for `torchreel replay --check` and for torchreel.tape.diff, at the cost of a copy of the state.
    """
    given = Structure((args, kwargs))
    session = Session(given.tensors, hashes or outplace)
    try:
        result = function(*args, **kwargs)
    except BaseException:
        session.end([])
        raise
    results = Structure(result)
    slots = session.end(results.tensors)
    tape = Tape(Captured(session, given, results, slots, described(function), lambda: reachable(function)))
    if outplace:
        from torchreel.tape.outplace import outplaced

        return outplaced(tape, hashes)
    return tape


class Tracing:
    """A `with` block whose ops become a tape."""

    def __init__(self, inputs: tuple[Any, ...], hashes: bool) -> None:
        self._inputs = inputs
        self._hashes = hashes
        self._session: Session | None = None
        self._tape = Tape(None)

    def __enter__(self) -> Tape:
        if self._session is not None:
            raise TraceError("This block has been traced: call torchreel.tracing() anew for another.")
        self._frame: FrameType | None = sys._getframe(1)
        self._given = Structure((self._inputs, {}))
        self._session = Session(self._given.tensors, self._hashes)
        return self._tape

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        assert self._session is not None
        frame, self._frame = self._frame, None
        assert frame is not None
        self._session.end([])
        if error is None:
            scope = visible(frame)
            code = frame.f_code
            where = f"a block in {code.co_qualname} ({code.co_filename}:{code.co_firstlineno})"
            self._tape.fill(Captured(self._session, self._given, Structure(None), [], where, scope))


def tracing(*inputs: Any, hashes: bool = False) -> Tracing:
    """A `with` block that becomes a tape: `with torchreel.tracing(x, y) as tape:`.

    The tensors that are given here are the tape's inputs, which replay takes anew; all others that the block uses are
    its state. The tape can be used when the block has ended.
    """
    return Tracing(inputs, hashes)


def described(function: Any) -> str:
    function = getattr(function, "__func__", function)
    name = getattr(function, "__qualname__", type(function).__name__)
    if isinstance(function, torch.nn.Module):
        function = type(function).forward
    code = getattr(function, "__code__", None)
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code is not None else str(name)
