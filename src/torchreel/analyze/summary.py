"""Summary: what a person wants to know of a reel first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from torchreel.analyze.connection import opened
from torchreel.reel import TABLES, Reel
from torchreel.reel.row_count import rows_in

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True)
class Peak:
    """The most memory that one process had allocated on one device."""

    process: str
    device: str
    bytes: int


@dataclass(frozen=True)
class Summary:
    """The size of a recording, how whole it is, and where its time went at the top level."""

    reel: str
    wall_ns: int  # from the first process's beginning to the last one's end
    ops: int
    threads: int
    steps: int
    processes: int
    incomplete_processes: tuple[str, ...]  # names of those that did not close their recording
    lost_events: int
    peak_memory: tuple[Peak, ...]  # the greatest first; empty if memory was not recorded
    top_level_ns: dict[str, int]  # time of the calls that nothing recorded had called, by kind, the greatest first
    recorded: dict[str, bool]  # which of the optional parts the reel holds

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as `report --format json` prints them."""
        values = asdict(self)
        return {**values, **{name: list(value) for name, value in values.items() if isinstance(value, tuple)}}


# The optional parts of a recording, and the table that has rows only if they were recorded.
_OPTIONAL = {"shapes": "inputs", "memory": "allocs", "stacks": "stacks", "modules": "modules", "counters": "counters"}


@dataclass(frozen=True)
class Survey:
    """What one pass over a reel tells: its summary, when its rows lie in time, and where most memory was."""

    summary: Summary
    begin_ns: int | None  # None if nothing in it has a time
    end_ns: int | None
    fullest: tuple[int, str | None] | None  # a process and a device of it; None if no time of memory is known


def summary(reel: Reel) -> Summary:
    """Read what is needed for a summary: the small tables, and a few columns of ops and allocs."""
    return survey(reel).summary


def survey(reel: Reel) -> Survey:
    """The summary, and what is found on the way to it."""
    rows = {table: sum(rows_in(part, TABLES[table]) for part in reel.parts) for table in _COUNTED}
    # A table that is not opened costs nothing.
    filled = tuple(table for table in ("steps", "allocs", "kernels") if rows[table])
    with opened(reel, ("ops", "processes", *filled)) as connection:
        return _survey(reel, connection, rows)


_COUNTED = ("threads", "steps", "kernels", *_OPTIONAL.values())
Times = tuple[int | None, int | None]


def _survey(reel: Reel, connection: duckdb.DuckDBPyConnection, rows: dict[str, int]) -> Survey:
    kinds = connection.sql(
        "SELECT kind, count(*), coalesce(sum(dur_ns) FILTER (WHERE parent IS NULL), 0)::BIGINT AS time,"
        " min(start_ns), max(start_ns + dur_ns) FROM ops GROUP BY kind ORDER BY time DESC, kind"
    ).fetchall()
    processes = connection.sql(
        "SELECT process, name, complete, lost_events, start_ns, end_ns FROM processes ORDER BY process"
    ).fetchall()
    memory = _memory(connection) if rows["allocs"] else []
    ops, recorded = [row[3:] for row in kinds], [row[4:] for row in processes]
    times = [*ops, *recorded, *(row[4:] for row in memory), *(_kernels(connection) if rows["kernels"] else [])]
    timed = [row for row in memory if row[3] is not None]
    fullest = min(timed, key=lambda row: (-row[3], row[0], row[1] or ""), default=None)
    names = {process: name or "" for process, name, *_ in processes}
    peaks = [Peak(names.get(process, ""), device, size) for process, device, size, *_ in memory if size is not None]
    head = Summary(
        reel=str(reel.path),
        wall_ns=next((length for length in (_length(recorded), _length(ops)) if length is not None), 0),
        ops=sum(row[1] for row in kinds),
        threads=rows["threads"],
        steps=_count(connection, "(SELECT DISTINCT step FROM steps)") if rows["steps"] else 0,
        processes=len(processes),
        incomplete_processes=tuple(row[1] for row in processes if row[2] is False),
        lost_events=sum(row[3] or 0 for row in processes),
        peak_memory=tuple(sorted(peaks, key=lambda peak: (-peak.bytes, peak.process, peak.device or ""))),
        top_level_ns={row[0]: row[2] for row in kinds if row[0] is not None and row[2]},
        recorded={part: rows[table] > 0 for part, table in _OPTIONAL.items()},
    )
    begin, end = _bounds(times)
    return Survey(head, begin, end, None if fullest is None else (fullest[0], fullest[1]))


def _memory(connection: duckdb.DuckDBPyConnection) -> list[Any]:
    """Of each process and device: its peak, that of events whose time is known, the first and the last time."""
    rows: list[Any] = connection.sql(
        "SELECT process, device, max(total), max(total) FILTER (WHERE time_ns IS NOT NULL), min(time_ns), max(time_ns)"
        " FROM allocs GROUP BY ALL"
    ).fetchall()
    return rows


def _kernels(connection: duckdb.DuckDBPyConnection) -> list[Any]:
    rows: list[Any] = connection.sql("SELECT min(start_ns), max(start_ns + dur_ns) FROM kernels").fetchall()
    return rows


def _count(connection: duckdb.DuckDBPyConnection, table: str) -> int:
    return int(connection.sql(f"SELECT count(*) FROM {table}").fetchall()[0][0])


def _bounds(times: Iterable[Times]) -> Times:
    """The earliest beginning and the latest end, of those that are known."""
    begins, ends = zip(*times, strict=True) if (times := list(times)) else ((), ())
    return (
        min((begin for begin in begins if begin is not None), default=None),
        max((end for end in ends if end is not None), default=None),
    )


def _length(times: Iterable[Times]) -> int | None:
    begin, end = _bounds(times)
    return None if begin is None or end is None else end - begin
