"""A trace of torch.profiler -> the tables of one process of a reel, and what is to be said of it."""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from torchreel._collector import collector_paused
from torchreel.errors import CorruptTraceError, NotATraceError
from torchreel.ingest.kineto.building import Building
from torchreel.ingest.kineto.collecting import Collected, number
from torchreel.ingest.kineto.columns import plain
from torchreel.ingest.kineto.events import EVENTS, Event
from torchreel.ingest.kineto.grammar import Losses
from torchreel.ingest.kineto.pieces import SECOND_LIST, Pieces
from torchreel.ingest.kineto.unpacking import Progress, Unpacking, opened
from torchreel.reel.tables import TABLES
from torchreel.reel.write import conform

_RANK = re.compile(r"rank[-_]?(\d{1,6})(?!\d)", re.IGNORECASE)


@dataclass
class Trace:
    """One file, read."""

    path: Path
    tables: dict[str, pa.Table]
    source: dict[str, Any]  # for meta.json
    events: int
    left_out: Counter[str]  # events that are in no table, by the reason
    doubtful: Counter[str]  # events that are there with values that cannot be meant
    losses: Losses
    problem: str | None  # why the file is not whole
    lost_bytes: int
    joined: dict[Path, int] = field(default_factory=dict)  # execution traces, and how many calls they knew

    @property
    def row(self) -> dict[str, Any]:
        """Its row of the table processes."""
        row: dict[str, Any] = self.tables["processes"].to_pylist()[0]
        return row

    def rename(self, name: str) -> None:
        """Give its process another name."""
        processes = self.tables["processes"]
        index = processes.schema.get_field_index("name")
        self.tables["processes"] = processes.set_column(index, "name", pa.array([name]))

    def forget(self) -> None:
        """Keep of the tables only how many rows they have."""
        self.tables = {name: table if name == "processes" else table.select([]) for name, table in self.tables.items()}

    def warnings(self) -> list[str]:
        """A sentence for each thing that is not as it should be."""
        found = []
        if self.problem is not None:
            found.append(
                f"{self.path} is not whole: {self.problem}. "
                f"{self.lost_bytes:,} bytes after the last whole event are lost."
            )
        second = self.losses.reasons[SECOND_LIST]
        if second:
            found.append(f"{self.path} has a second list of events, which is not read.")
        damaged = self.losses.events - second - (self.losses.reasons["cut off"] if self.problem else 0)
        if damaged:
            what = f"1 event of {self.path} is" if damaged == 1 else f"{damaged:,} events of {self.path} are"
            found.append(f"{what} damaged and left out ({self.losses.bytes:,} bytes).")
        if self.losses.mended:
            was = "event" if self.losses.mended == 1 else "events"
            found.append(f"{self.losses.mended:,} {was} of {self.path} had faults that could be mended.")
        for what, count in self.doubtful.items():
            found.append(f"{count:,} {'event' if count == 1 else 'events'} of {self.path} {what}.")
        found += [
            f"{path} gives its numbers to other calls than {self.path}, so it is of another run: nothing of it is used."
            for path, count in self.joined.items()
            if not count
        ]
        return found


def read_trace(path: str | os.PathLike[str], progress: Progress | None = None) -> Trace:
    """The tables of a trace, plain or compressed with gzip. What is damaged in it is left out and counted."""
    path = Path(path)
    with collector_paused(), opened(path) as (file, size):
        unpacking = Unpacking(file, size, progress)
        pieces = Pieces(unpacking.blocks(), EVENTS)
        collected = Collected()
        for events in pieces:
            collected.add(events)
        if not pieces.found:
            raise NotATraceError(f"{path} is not a trace: it has no list of events. Name a file of torch.profiler.")
        if not collected.events and (pieces.losses.events or pieces.cut_off):
            raise CorruptTraceError(f"No event of {path} can be read: copy it again from where it was made.")
        return _built(path, unpacking, pieces, collected)


def _built(path: Path, unpacking: Unpacking, pieces: Pieces[Event], collected: Collected) -> Trace:
    building = Building(collected, pieces.top)
    tables = {name: conform(TABLES[name], table) for name, table in building.tables().items()}
    problem = unpacking.problem
    if problem is None and pieces.cut_off:
        problem = "it ends early"
    tables["processes"] = _process(path, building, pieces, collected, problem)
    source = {"file": plain(path.name), "kind": "trace", "size": unpacking.size, "sha256": unpacking.sha256}
    source |= {name: value for name, value in pieces.top.items() if name not in (*source, "traceEvents")}
    losses = pieces.losses
    out, doubtful = collected.left_out, collected.doubtful
    return Trace(path, tables, source, collected.events, out, doubtful, losses, problem, losses.bytes)


def _process(
    path: Path, building: Building, pieces: Pieces[Event], collected: Collected, problem: str | None
) -> pa.Table:
    top = pieces.top
    rank, world_size = _rank(path, top)
    extent = building.extent()
    pid = _pid(collected)
    host = top.get("host_name")
    host = plain(host) if type(host) is str and host else None
    row = {
        "name": process_name(path, rank, host, pid),
        "pid": pid,
        "host": host,
        "rank": rank,
        "world_size": world_size,
        "command": _command(collected, pid),
        "clock": "torch.profiler",
        "start_ns": extent[0] if extent else None,
        "end_ns": extent[1] if extent else None,
        "complete": problem is None and not pieces.losses.events,
        "lost_events": pieces.losses.events,
    }
    definition = TABLES["processes"]
    return pa.Table.from_pylist([{name: row.get(name) for name in definition.names}], schema=definition.schema)


def process_name(path: Path, rank: int | None, host: str | None, pid: int | None) -> str:
    """The directory of a process: as recordings name them, with the file's name where the trace has no host."""
    stem = re.sub(r"(\.pt)?(\.trace)?\.json(\.gz)?$", "", path.name) or path.name
    label = re.sub(r"[^\w.-]+", "_", host or stem, flags=re.ASCII).strip(".")[:100] or "trace"
    parts = [*([f"rank{rank:05}"] if rank is not None else []), label, *([str(pid)] if pid is not None else [])]
    return "-".join(parts)


def _rank(path: Path, top: dict[str, Any]) -> tuple[int | None, int | None]:
    said = top.get("distributedInfo")
    said = said if type(said) is dict else {}
    rank, world_size = _small(said.get("rank")), _small(said.get("world_size"))
    if rank is None and (match := _RANK.search(path.name)):
        rank = int(match[1])
    return rank, world_size


def _small(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 2**31 else None


def _pid(collected: Collected) -> int | None:
    """The process of most calls; rows of devices and of the profiler are none."""
    for pid, _ in collected.host_pids.most_common():
        if type(pid) is int and 0 <= pid < 2**63 and (pid not in collected.device_pids or pid > 0):
            return pid
    return None


def _command(collected: Collected, pid: int | None) -> str | None:
    name = collected.named(number(pid), 0, "process_name")
    return plain(name) if name else None
