"""Observers: a function that is called for every event of memory as it happens."""

from __future__ import annotations

import atexit
import sys
import threading
from collections.abc import Callable
from typing import NamedTuple, Self

from torchreel import _core
from torchreel.errors import OptionError, RecorderError


class MemoryEvent(NamedTuple):
    """One event of the history, as `device_traces` of a snapshot has it."""

    action: str
    addr: int  # of an oom: the bytes that were free
    size: int
    pool_id: tuple[int, int]


class Observer:
    """What observe() gives: remove() ends it, and so does the end of a `with` block."""

    def __init__(self, callback: Callable[[MemoryEvent], object]) -> None:
        self._callback = callback

    def remove(self) -> None:
        """Call the function no more."""
        with _lock:
            if self in _observers:
                _observers.remove(self)
            if not _observers:
                _core.observe_events(None)

    def tell(self, event: MemoryEvent) -> None:
        try:
            self._callback(event)
        except Exception:
            sys.excepthook(*sys.exc_info())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


_observers: list[Observer] = []
_lock = threading.Lock()


def observe(callback: Callable[[MemoryEvent], object]) -> Observer:
    """Call `callback(event)` for every event of memory, in the thread that makes it, right after it has happened.

    It needs a history (record_history()), whose skip_actions do not concern it. Events that the callback makes itself
    are part of the history and are not told, to no observer: untold_events() counts them. What it raises is printed.
    """
    if not callable(callback):
        raise OptionError(f"observe takes a function of one event, not {callback!r}.")
    if not _core.history_on():
        raise RecorderError("An observer needs a history: call torchreel.memory.record_history() before observe().")
    observer = Observer(callback)
    with _lock:
        if not _observers:
            _core.observe_events(_tell)
        _observers.append(observer)
    return observer


def untold_events() -> int:
    """How many events were made within observers, and told to none."""
    return _core.untold_events()


def _tell(action: str, address: int, size: int, pool: int) -> None:
    event = MemoryEvent(action, address, size, (0, pool))
    for observer in tuple(_observers):
        observer.tell(event)


atexit.register(_core.silence_events)
