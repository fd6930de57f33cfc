"""The calls that an adapter told of."""

from __future__ import annotations

import threading


class Told:
    """Counts them; `threads` are those that they were made on."""

    def __init__(self) -> None:
        self.entered = 0
        self.left = 0
        self.threads: set[int] = set()

    def enter(self) -> None:
        self.entered += 1
        self.threads.add(threading.get_native_id())

    def leave(self) -> None:
        self.left += 1
        self.threads.add(threading.get_native_id())
