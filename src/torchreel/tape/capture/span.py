"""A trace from one moment to another, where no `with` block can stand around the ops: of a step, from hook to hook."""

from __future__ import annotations

import os
from types import FrameType

from torchreel import _tape
from torchreel._cpython.interpreter import get_frame
from torchreel.tape.capture.trace import tracing
from torchreel.tape.tape import Tape

# Whose variables are not the user's.
_NOT_THE_USERS = ("torch", "torchreel", "contextlib", "functools")


class Span:
    """Begins when it is made; a TraceError if it cannot."""

    def __init__(self) -> None:
        self._block = tracing()
        self._tape = self._block.__enter__()
        self._block._frame = None  # a step may begin in another function than it ends in, and that one may be gone
        _open.add(self)

    def end(self) -> Tape:
        """Stop; names are those of the variables that the user's code has now."""
        _open.discard(self)
        self._block._frame = _users_frame(get_frame(1))
        self._block.__exit__(None, None, None)
        return self._tape

    def leave(self) -> None:
        """Let it go on elsewhere. Takes no lock, for a thread that is gone may hold it."""
        _tape.follow_thread(False)
        session = self._block._session
        if session is not None:
            session._switch_off()


_open: set[Span] = set()


def _leave_to_parent() -> None:
    """In a forked child, such as a worker of a DataLoader: the trace goes on in the parent."""
    while _open:
        _open.pop().leave()


os.register_at_fork(after_in_child=_leave_to_parent)


def _users_frame(frame: FrameType) -> FrameType:
    found: FrameType | None = frame
    while found is not None:
        if str(found.f_globals.get("__name__", "")).partition(".")[0] not in _NOT_THE_USERS:
            return found
        found = found.f_back
    return frame
