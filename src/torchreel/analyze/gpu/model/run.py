"""One process with kernels: its calls, its kernels, what it waited for, and the user's lines behind them."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from torchreel.analyze.connection import reading
from torchreel.analyze.gpu.model import calls as calls_module
from torchreel.analyze.gpu.model import kernels as kernels_module
from torchreel.analyze.gpu.model.calls import Calls, calls_of
from torchreel.analyze.gpu.model.kernels import Kernels, kernels_of
from torchreel.analyze.gpu.model.timeline import Timeline, timeline_of
from torchreel.analyze.memory.model.stacks import Stacks, stacks_of
from torchreel.analyze.source.call_tree import inherited
from torchreel.analyze.source.frames import LIBRARY, TORCH, USER, Frame, frame_of
from torchreel.reel import Reel
from torchreel.reel.columns import NOTHING, Ints, rows_of

NO_KERNELS = (
    "There are no kernels in this reel: record with torch.profiler and ProfilerActivity.CUDA (or XPU, MTIA), "
    "and give the trace to 'torchreel import'."
)
_KEPT = 4  # processes, of which each may have millions of calls
_FRAME = re.compile(r"(?P<file>.*)\((?P<line>\d{1,9})\): (?P<function>.*)")


@dataclass
class DeviceRun:
    """One process of a reel."""

    reel: Reel
    process: int
    calls: Calls
    kernels: Kernels
    _timelines: dict[int, Timeline] = field(default_factory=dict)
    _texts: dict[int, str] = field(default_factory=dict)

    def timeline(self, thread: int) -> Timeline:
        """What a thread was doing at each moment."""
        if thread not in self._timelines:
            self._timelines[thread] = timeline_of(self.calls, thread)
        return self._timelines[thread]

    @functools.cached_property
    def stacks(self) -> Stacks:
        return stacks_of(self.reel, self.process)

    @functools.cached_property
    def _placed(self) -> Ints:
        """For each call the row of itself or of the nearest call around it that says where it is in the source."""
        calls = self.calls
        says = (calls.stack >= 0) | calls.of_kind(frozenset({"python"}))
        return inherited(calls.above, np.where(says, np.arange(len(calls)), NOTHING))

    def line(self, row: int) -> str | None:
        """The user's line behind a call: src/train.py:30 main; None where no stack was recorded."""
        return self.line_text(int(self.line_numbers[row])) if row >= 0 else None

    @functools.cached_property
    def line_numbers(self) -> Ints:
        """For each call the number of the line behind it, for `line_text`; or NOTHING. The last is that of no call."""
        stacks = self.stacks
        stack = rows_of(stacks.id, np.append(self.calls.stack, NOTHING)[self._placed])
        stack = np.where(np.append(np.diff(stacks.starts), 0)[stack] > 0, stack, NOTHING)
        function = np.append(self._functions, NOTHING)[self._placed]
        name = np.append(self.calls.name, NOTHING)[function]
        by_call = np.where((self._placed >= 0) & (function >= 0), len(stacks) + name, NOTHING)
        return np.append(np.where((self._placed >= 0) & (stack >= 0), stack, by_call), NOTHING)

    def line_text(self, number: int) -> str | None:
        """A line by its number."""
        if number < 0:
            return None
        if number not in self._texts:
            name = number - len(self.stacks)
            self._texts[number] = self._function_frames[name].text if name >= 0 else self.stacks.line(number).text
        return self._texts[number]

    @functools.cached_property
    def operator_numbers(self) -> Ints:
        """For each call the number of the name of the operator around it, or NOTHING. The last is that of no call."""
        return np.append(np.append(self.calls.name, NOTHING)[self.calls.operator], NOTHING)

    @functools.cached_property
    def _function_frames(self) -> dict[int, Frame]:
        """The lines that calls of Python name, by the number of the name."""
        matches = ((number, _FRAME.fullmatch(name)) for number, name in enumerate(self.calls.names))
        return {
            number: frame_of(match["file"], int(match["line"]), match["function"]) for number, match in matches if match
        }

    @functools.cached_property
    def _functions(self) -> Ints:
        """For each call the innermost call of Python around it that is the user's own, else that has a line at all."""
        frames = self._function_frames
        python = self.calls.of_kind(frozenset({"python"}))
        user, any_line = (
            self.calls.nearest(python & self.calls.numbered({n for n, frame in frames.items() if frame.kind in kinds}))
            for kinds in ((USER,), (USER, LIBRARY, TORCH))
        )
        return np.where(user >= 0, user, any_line)

    def _stack(self, place: int) -> int | None:
        """The row of a call's stack, if it has one with frames."""
        stack = int(self.calls.stack[place])
        row = int(rows_of(self.stacks.id, np.array([stack]))[0]) if stack >= 0 else NOTHING
        return row if row >= 0 and self.stacks.starts[row] < self.stacks.starts[row + 1] else None

    def places(self, rows: Ints) -> Ints:
        """For each call the row of the one that says where it is in the source, or NOTHING; for `frames`."""
        return np.append(self._placed, NOTHING)[rows]

    def frames(self, place: int) -> list[Frame]:
        """The lines around a call, the innermost first: of its stack, else the calls of Python around it."""
        if place < 0:
            return []
        row = self._stack(place)
        if row is not None:
            return self.stacks.frames_of(row)
        found = []
        while place >= 0:
            frame = self._function_frames.get(int(self.calls.name[place]))
            if frame is not None:
                found.append(frame)
            place = int(self.calls.above[place])
        return found

    def operator_name(self, row: int) -> str | None:
        """The operator around a call, else the range; None for neither."""
        operator = int(self.calls.operator[row]) if row >= 0 else NOTHING
        return self.calls.text(operator) if operator >= 0 else None

    def rows(self, table: str, columns: list[str] | None = None) -> pa.Table:
        """Rows of another table of this process."""
        return _rows(self.reel, self.process, table, columns)


def _rows(reel: Reel, process: int, table: str, columns: list[str] | None = None) -> pa.Table:
    return reel.rows_of(table, [part for part in reel.parts if part.index == process], columns)


def device_runs(reel: Reel) -> Iterator[DeviceRun]:
    """The processes of a reel that have kernels, one after the other.

    A reel of few processes keeps them: the questions of one screen read them once.
    """
    kept: dict[int, DeviceRun | None] = vars(reel).setdefault("_device_runs", {})
    for part in reel.parts:
        if part.index in kept:
            run = kept[part.index]
        else:
            run = _device_run(reel, part.index)
            if len(reel.parts) <= _KEPT:
                kept[part.index] = run
        if run is not None:
            yield run


def _device_run(reel: Reel, process: int) -> DeviceRun | None:
    with reading(reel, ("ops", "kernels")):
        kernels = _rows(reel, process, "kernels", kernels_module.COLUMNS)
        if not kernels.num_rows:
            return None
        calls = calls_of(_rows(reel, process, "ops", calls_module.COLUMNS))
        return DeviceRun(reel, process, calls, kernels_of(kernels, calls))
