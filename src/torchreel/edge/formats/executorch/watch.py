"""One ExecuTorch program while its calls are told: which calls there were, and the measurements that they left.

The runtime gives its measurements away when it writes them, and crashes if it is asked a second time before it has
run again. So what was taken for a profile is kept, and given to a user who asks for it afterwards.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchreel.edge.formats.adapter import Calls

Write = Callable[[str, str | None], None]
"""The runtime's own way to write its measurements: the path of the ETDump, and of the debug buffer."""


@dataclass
class Call:
    """One call of the program while it was watched."""

    method: str
    start: int = 0
    """On the runtime's clock."""
    end: int = 0
    has_returned: bool = False


class Watch:
    """One program. It holds no reference to it, because the program's life ends its own."""

    def __init__(self, clock: Callable[[], int] | None) -> None:
        self.calls: list[Call] = []
        self.dumps: list[bytes] = []
        self.has_clock = clock is not None
        self._clock = clock or (lambda: 0)
        self._told: Calls | None = None
        self._last: bytes | None = None
        # None: nothing is known of what was run before.
        self._has_run: bool | None = None

    def begin(self, told: Calls) -> None:
        self.calls, self.dumps, self._told = [], [], told

    def end(self, write: Write) -> None:
        """What was measured is taken now: later it might be given to somebody else."""
        if self._told is not None and self._has_run:
            with tempfile.TemporaryDirectory(prefix="torchreel-") as directory:
                self.write(str(Path(directory) / "run.etdump"), None, write)
        self._told = None

    def run(self, method: str, function: Callable[[], Any]) -> Any:
        """Call the program."""
        if self._told is None:
            result = function()
            self._has_run = True
            return result
        call, told = Call(method), self._told
        told.enter()
        try:
            self.calls.append(call)
            call.start = self._clock()
            result = function()
            call.end = self._clock()
            call.has_returned = self._has_run = True
            return result
        finally:
            told.leave()

    def write(self, path: str, debug_path: str | None, write: Write) -> None:
        """Write the measurements: those of the last time again, if nothing was run since."""
        if self._has_run is False and self._last is not None:
            Path(path).write_bytes(self._last)
            return
        write(path, debug_path)
        if self._has_run:
            self._has_run, self._last = False, Path(path).read_bytes()
            if self._told is not None:
                self.dumps.append(self._last)
