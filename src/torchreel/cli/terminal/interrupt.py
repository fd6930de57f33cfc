"""Ctrl-C while a query runs: DuckDB does not look for it, and Python cannot until the query is over."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import NoReturn, TypeVar

Result = TypeVar("Result")

INTERRUPTED = 130


def interruptible(work: Callable[[], Result]) -> Result:
    """Do work that only reads on another thread, while this one waits for its end or for Ctrl-C."""
    results: list[Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        thread.join()
    except KeyboardInterrupt:
        _leave()
    if errors:
        raise errors[0]
    return results[0]


def _leave() -> NoReturn:
    """End the process now: an orderly end would wait for the query."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(INTERRUPTED)
