"""Summary: what a person wants to know of a reel first."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from torchreel.analyze.connection import opened
from torchreel.reel import Reel

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


def summary(reel: Reel) -> Summary:
    """Read what is needed for a summary: the small tables, and three columns of the ops."""
    with opened(reel, ("ops", "processes", "threads", "steps", *_OPTIONAL.values())) as connection:
        return _summary(reel, connection)


def _summary(reel: Reel, connection: duckdb.DuckDBPyConnection) -> Summary:
    kinds = connection.sql(
        "SELECT kind, count(*), coalesce(sum(dur_ns) FILTER (WHERE parent IS NULL), 0)::BIGINT AS time"
        " FROM ops GROUP BY kind ORDER BY time DESC, kind"
    ).fetchall()
    peaks = connection.sql(
        "SELECT coalesce(p.name, ''), a.device, a.bytes FROM"
        " (SELECT process, device, max(total) AS bytes FROM allocs GROUP BY ALL) AS a"
        " LEFT JOIN processes AS p USING (process) WHERE a.bytes IS NOT NULL ORDER BY a.bytes DESC, 1, 2"
    ).fetchall()
    processes = connection.sql("SELECT name, complete, lost_events FROM processes ORDER BY process").fetchall()
    return Summary(
        reel=str(reel.path),
        wall_ns=_wall_ns(connection),
        ops=sum(count for _, count, _ in kinds),
        threads=_count(connection, "threads"),
        steps=_count(connection, "(SELECT DISTINCT step FROM steps)"),
        processes=len(processes),
        incomplete_processes=tuple(name for name, complete, _ in processes if complete is False),
        lost_events=sum(lost or 0 for _, _, lost in processes),
        peak_memory=tuple(Peak(*peak) for peak in peaks),
        top_level_ns={kind: time for kind, _, time in kinds if kind is not None and time},
        recorded={part: _count(connection, table) > 0 for part, table in _OPTIONAL.items()},
    )


def _count(connection: duckdb.DuckDBPyConnection, table: str) -> int:
    return int(connection.sql(f"SELECT count(*) FROM {table}").fetchall()[0][0])


def _wall_ns(connection: duckdb.DuckDBPyConnection) -> int:
    wall = connection.sql("SELECT max(end_ns) - min(start_ns) FROM processes").fetchall()[0][0]
    if wall is None:
        wall = connection.sql("SELECT max(start_ns + dur_ns) - min(start_ns) FROM ops").fetchall()[0][0]
    return int(wall or 0)
