"""Threads that a traced function starts, or hands work to: their ops belong to the tape as well."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from torchreel import _tape
from torchreel._cpython.interpreter import set_thread_bootstrap, thread_bootstrap

_start = threading.Thread.start
_submit = ThreadPoolExecutor.submit


class _OfThread(threading.local):
    traced = False


# Whether this thread's ops are on the tape: what other threads of the program start meanwhile is none of the tape's.
_of_thread = _OfThread()


def _followed_start(self: threading.Thread) -> None:
    if _of_thread.traced:
        self._torchreel_follows = True  # type: ignore[attr-defined]
    _start(self)


def _followed_bootstrap(self: threading.Thread) -> None:
    if not getattr(self, "_torchreel_follows", False):
        return thread_bootstrap(self)
    _switch(True)
    try:
        thread_bootstrap(self)
    finally:
        _switch(False)


def _followed_submit(self: ThreadPoolExecutor, function: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
    if not _of_thread.traced:
        return _submit(self, function, *args, **kwargs)

    def followed(*args: Any, **kwargs: Any) -> Any:
        _switch(True)
        try:
            return function(*args, **kwargs)
        finally:
            _switch(False)

    return _submit(self, followed, *args, **kwargs)


def _switch(on: bool) -> None:
    _tape.follow_thread(on)
    _of_thread.traced = on


def follow(on: bool) -> None:
    """Called by the thread that is traced, when its tape begins and ends."""
    _of_thread.traced = on
    threading.Thread.start = _followed_start if on else _start  # type: ignore[method-assign]
    set_thread_bootstrap(_followed_bootstrap if on else thread_bootstrap)
    ThreadPoolExecutor.submit = _followed_submit if on else _submit  # type: ignore[method-assign, assignment]
