"""Threads that a traced function starts, or hands work to: their ops belong to the tape as well."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from torchreel import _tape

_bootstrap = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]
_submit = ThreadPoolExecutor.submit


def _followed_bootstrap(self: threading.Thread) -> None:
    _tape.follow_thread(True)
    try:
        _bootstrap(self)
    finally:
        _tape.follow_thread(False)


def _followed_submit(self: ThreadPoolExecutor, function: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
    def followed(*args: Any, **kwargs: Any) -> Any:
        _tape.follow_thread(True)
        try:
            return function(*args, **kwargs)
        finally:
            _tape.follow_thread(False)

    return _submit(self, followed, *args, **kwargs)


def follow(on: bool) -> None:
    threading.Thread._bootstrap_inner = _followed_bootstrap if on else _bootstrap  # type: ignore[attr-defined]
    ThreadPoolExecutor.submit = _followed_submit if on else _submit  # type: ignore[method-assign, assignment]
