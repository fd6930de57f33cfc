"""What devices do while a program is recorded: read by Kineto beside our recorder, and joined to its ops at the end.

Kineto keeps what it reads in memory until it is stopped, and then writes a trace. A recording that pauses has a trace
of each span that it recorded. While one is taken, short ranges that both Kineto and the recorder see tell how their
clocks stand to each other.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from torchreel import _core
from torchreel._torch import kineto, memory
from torchreel.errors import UnavailableError, first_line
from torchreel.ingest.device_join.clock import CLOCK_RANGE
from torchreel.ingest.device_join.join import Joined, join_device, without_clock_ranges
from torchreel.ingest.device_join.memory import join_history
from torchreel.reel.tables import TABLES
from torchreel.reel.write import write_process

_MARKS = 8
_numbers = itertools.count()  # of the ranges for the clocks: none is given twice in a process


def here() -> bool:
    """Whether there is a device whose activity can be recorded."""
    return bool(kineto.device_activities())


def check_devices() -> None:
    """Raise if no device's activity can be recorded now."""
    if not here():
        raise UnavailableError(
            "There is no GPU whose activity could be recorded: torch finds none here, or its Kineto cannot read it. "
            "Record without gpu, or on a machine with one."
        )
    if kineto.is_the_programs():
        raise UnavailableError(
            "torch.profiler is on, and Kineto reads devices for one at a time: stop it first, or record without gpu."
        )


class DeviceActivity:
    """Traces of what devices do, and of their memory, until the recording ends. Never disturbs the program."""

    def __init__(self, directory: Path, *, with_memory: bool, with_stacks: bool) -> None:
        self._directory = directory
        self._with_memory = with_memory and memory.cuda_is_here()
        self._with_stacks = with_stacks
        self._traces: list[Path] = []
        self._on = False
        self._history: dict[str, object] | None = None
        self.problems: list[str] = []

    def begin(self) -> None:
        """Before the recorder is switched on."""
        if self._with_memory:
            context = "all" if self._with_stacks else None
            memory.record_history(enabled="all", context=context, stacks="python", clear_history=True)
        self.resume()

    def resume(self) -> None:
        """Begin a trace, before the recorder goes on; mark_clocks() follows when it does."""
        kineto.start(kineto.device_activities())
        self._on = True

    def mark_clocks(self) -> None:
        """Let Kineto and the recorder, both on, see some ranges."""
        if self._on:
            for _ in range(_MARKS):
                with _core.Range(f"{CLOCK_RANGE}{next(_numbers)}"):
                    pass

    def pause(self) -> None:
        """End the trace, when the recorder is off."""
        if not self._on:
            return
        self._on = False
        self._directory.mkdir(exist_ok=True)  # a short program has left nothing there yet
        path = self._directory / f"devices-{len(self._traces)}.json"
        try:
            if kineto.stop(str(path)):
                self._traces.append(path)
            else:
                self.problems.append(
                    "The program has used torch.profiler, which took Kineto from the recording: what devices did is "
                    "not in the reel. Record without gpu, or the program without its profiler."
                )
        except Exception as error:  # the program goes on, and so does the rest of the recording
            self.problems.append(f"Kineto could not write what devices did: {first_line(error)}.")

    def end(self) -> None:
        """The recorder is off for good."""
        self.pause()
        if self._with_memory:
            try:
                self._history = memory.cuda_snapshot()
                memory.record_history(enabled=None)
            except Exception as error:
                self.problems.append(f"The history of CUDA's memory could not be had: {first_line(error)}.")

    def abandon(self) -> None:
        """Nothing is wanted of it any more."""
        if self._on:
            self._on = False
            kineto.cancel()
        if self._with_memory:
            memory.record_history(enabled=None)

    def leave_to_parent(self) -> None:
        """This is the copy of a forked child: what is on is the parent's."""
        self._on = self._with_memory = False

    def join(self, directory: Path) -> None:
        """Put it all into the tables of the process. What cannot be joined stays beside them, and is said."""
        try:
            tables = read_tables(directory)
            for path in self._traces:
                tables = self._joined(tables, path)
            if self._history is not None:
                from torchreel.ingest import tables_of

                tables = join_history(tables, tables_of(self._history)).tables
            write_process(directory, without_clock_ranges(tables))
        except Exception as error:  # the recording itself is there
            kept = ", ".join(str(path) for path in self._traces)
            self.problems.append(
                f"What devices did is not joined with the ops: {first_line(error)}"
                + (f" Kineto's trace is kept: {kept}." if kept else "")
            )
        else:
            for path in self._traces:
                path.unlink(missing_ok=True)

    def _joined(self, tables: dict[str, pa.Table], path: Path) -> dict[str, pa.Table]:
        from torchreel.ingest.kineto.trace import read_trace

        joined = join_device(tables, read_trace(path).tables)
        self.problems += _doubts(joined)
        return joined.tables

    def say(self) -> None:
        """Print what did not go well."""
        for problem in self.problems:
            print(f"torchreel: {problem}", file=sys.stderr)
        self.problems = []


def _doubts(joined: Joined) -> list[str]:
    """What a reader should know of a join that is not certain."""
    alignment = joined.alignment
    if alignment.error_ns is None:
        return ["Kineto saw none of the ranges that align the clocks: times of devices are as Kineto wrote them."]
    if alignment.disagreeing:
        return [f"{alignment.disagreeing} of {alignment.marks} ranges contradict the alignment of the clocks."]
    return []


def read_tables(directory: Path) -> dict[str, pa.Table]:
    """The tables of one process, from its Parquet files."""
    files = {name: directory / f"{name}.parquet" for name in TABLES}
    return {name: pq.read_table(path) for name, path in files.items() if path.exists()}
