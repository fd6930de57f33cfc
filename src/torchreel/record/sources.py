"""Where a recorder's events come from: a recording of its own, or a part of one that was begun from outside.

A program that `torchreel record` runs, or a child of a recorded program, is recorded already. A recorder in it joins:
the recording from outside goes on undisturbed, and the recorder's reel gets what began while the recorder was on.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Protocol

from torchreel import _core
from torchreel.record import process
from torchreel.record.options import RecordOptions
from torchreel.record.steps import BY_HAND, BY_OPTIMIZER
from torchreel.reel import spool


class Source(Protocol):
    """What a recorder asks of it."""

    def begin(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def define_step(self, number: int, kind: int, tick: int | None) -> None: ...
    def start_tick(self) -> int: ...
    def end(self) -> dict[str, Any]:
        """Gives the count of lost events and the disk's error, if any."""

    def write(self, directory: Path, additions: spool.Additions) -> None:
        """The tables of what was recorded."""


class OwnRecording:
    """The process's one recording."""

    def __init__(self, directory: Path | None, options: RecordOptions, program: Path | None) -> None:
        self._directory = directory
        self._options = options
        self._program = program  # its directory, if it is not that of __main__

    def begin(self) -> None:
        process.begin(self._directory, self._options, self._program)

    def pause(self) -> None:
        _core.pause()

    def resume(self) -> None:
        _core.resume()

    def define_step(self, number: int, kind: int, tick: int | None) -> None:
        _core.define_step(number, kind, tick)

    def start_tick(self) -> int:
        return _core.start_tick()

    def end(self) -> dict[str, Any]:
        return process.end()

    def write(self, directory: Path, additions: spool.Additions) -> None:
        """The events that a flight recorder holds now; else those that were streamed to the directory."""
        if self._directory is None:
            _core.dump(str(directory / spool.DIRECTORY))
        spool.convert(directory, additions)


class JoinedRecording:
    """Part of a recording that was begun from outside: what begins while this is on."""

    def __init__(self, outer: Path | None) -> None:
        self._outer = outer  # its directory; None for a flight recorder
        self._windows: list[tuple[int, int]] = []
        self._since: int | None = None
        self._steps: list[tuple[int, int, int]] = []

    def begin(self) -> None:
        self._since = _core.now()

    def pause(self) -> None:
        if self._since is not None:
            self._windows.append((self._since, _core.now()))
            self._since = None

    def resume(self) -> None:
        if self._since is None:
            self._since = _core.now()

    def define_step(self, number: int, kind: int, tick: int | None) -> None:
        self._steps.append((number, kind, tick if tick is not None else _core.now()))

    def start_tick(self) -> int:
        return self._windows[0][0] if self._windows else self._since or _core.now()

    def end(self) -> dict[str, Any]:
        self.pause()
        return {"lost": 0, "error": ""}

    def write(self, directory: Path, additions: spool.Additions) -> None:
        windows = [*self._windows, *([(self._since, _core.now())] if self._since is not None else [])]
        by_hand = any(kind == BY_HAND for _, kind, _ in self._steps)
        steps = [(number, tick) for number, kind, tick in self._steps if not (by_hand and kind == BY_OPTIMIZER)]
        if self._outer is not None:
            _core.flush()
            if not spool.exists(self._outer):
                return  # no op has run in the program so far
            spool.convert_part(self._outer, directory, windows, steps, additions)
            return
        with tempfile.TemporaryDirectory(prefix="torchreel-joined-") as dumped:
            _core.dump(str(Path(dumped, spool.DIRECTORY)))
            spool.convert_part(Path(dumped), directory, windows, steps, additions)


def missing_options(wanted: RecordOptions, outer: RecordOptions) -> list[str]:
    """What a recorder asks for and the recording that it joins does not record, as names of options."""
    parts = ("shapes", "memory", "stacks", "modules", "python", "gpu")
    missing = [name for name in parts if getattr(wanted, name) and not getattr(outer, name)]
    if set(wanted.counters) - set(outer.counters):
        missing.append("counters")
    return missing
