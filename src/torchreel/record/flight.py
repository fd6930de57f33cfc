"""When a flight recorder dumps by itself: on a signal, and on an exception that ends the program."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from torchreel.errors import TorchreelError
from torchreel.reel import Reel


class DumpTriggers:
    """Calls `dump` and says where it went, until close()."""

    def __init__(self, dump: Callable[[], Reel], dump_signal: int | None) -> None:
        self._dump = dump
        self._signal = dump_signal
        self._old_handler: Any = None
        if dump_signal is not None and threading.current_thread() is threading.main_thread():
            self._old_handler = signal.signal(dump_signal, self._on_signal)
        self._old_excepthook = sys.excepthook
        self._excepthook = self._on_exception  # bound once, so that it is known again
        sys.excepthook = self._excepthook

    def close(self) -> None:
        """Put back what was there before."""
        if self._old_handler is not None and self._signal is not None:
            signal.signal(self._signal, self._old_handler)
            self._old_handler = None
        if sys.excepthook is self._excepthook:
            sys.excepthook = self._old_excepthook

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._dump_and_say()

    def _on_exception(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        self._dump_and_say()
        self._old_excepthook(kind, error, trace)

    def _dump_and_say(self) -> None:
        try:
            reel = self._dump()
        except TorchreelError as error:  # the program's own error is what matters
            print(f"torchreel: {error}", file=sys.stderr)
        else:
            print(f"torchreel: the flight recorder was dumped to {reel.path}.", file=sys.stderr)
