"""A reel that is viewed: its extent in time, its lanes and its memory over time, read once, in the background."""

from __future__ import annotations

import functools
import threading
from typing import Any

import numpy as np

from torchreel.analyze.connection import opened
from torchreel.analyze.memory import DeviceMemory, device_memories
from torchreel.reel import Reel
from torchreel.web.lanes import Labels, Lane, read_lanes
from torchreel.web.query import Query
from torchreel.web.tiles import Curve


class ViewedReel:
    """Times that it gives and takes are nanoseconds since the reel's beginning."""

    def __init__(self, reel: Reel, other: Reel | None = None) -> None:
        self.reel = reel
        self.other = other
        """A second reel to compare it with."""
        self._lock = threading.Lock()
        self._lanes: list[Lane] | None = None
        self.labels = Labels()

    @functools.cached_property
    def extent(self) -> tuple[int, int]:
        """When the reel begins, as time since the epoch, and how long it is."""
        with opened(self.reel, ("processes", "ops", "allocs")) as connection:
            begin, end = connection.sql(
                "SELECT min(b), max(e) FROM (SELECT min(start_ns) AS b, max(end_ns) AS e FROM processes"
                " UNION ALL SELECT min(start_ns), max(start_ns + dur_ns) FROM ops"
                " UNION ALL SELECT min(time_ns), max(time_ns) FROM allocs)"
            ).fetchall()[0]
        return (0, 1) if begin is None else (int(begin), max(int(end) - int(begin), 1))

    @property
    def origin(self) -> int:
        return self.extent[0]

    @property
    def end(self) -> int:
        return self.extent[1]

    @property
    def lanes(self) -> list[Lane]:
        """By process, thread and depth; read when they are first asked for."""
        with self._lock:
            if self._lanes is None:
                self._lanes = [lane for part in self.reel.parts for lane in read_lanes(part, self.origin, self.labels)]
            return self._lanes

    @functools.cached_property
    def curve(self) -> Curve | None:
        """The memory of the process and device that had most of it; None if none was recorded."""
        with opened(self.reel, ("allocs",)) as connection:
            most = connection.sql(
                "SELECT process, device FROM allocs WHERE total IS NOT NULL AND time_ns IS NOT NULL"
                " GROUP BY ALL ORDER BY max(total) DESC, 1, 2 LIMIT 1"
            ).fetchall()
            if not most:
                return None
            found = connection.execute(
                "SELECT time_ns, total FROM allocs WHERE process = $1 AND device = $2 AND total IS NOT NULL"
                " AND time_ns IS NOT NULL ORDER BY time_ns, id",
                list(most[0]),
            ).fetchnumpy()
        return Curve(np.asarray(found["time_ns"], np.int64) - self.origin, np.asarray(found["total"], np.int64))

    def range(self, query: Query) -> tuple[int, int]:
        """The range of time that a query gives, or the whole run, as times since the epoch."""
        begin = query.number("begin", 0, self.end, 0)
        end = query.number("end", begin, 1 << 62, self.end)
        return begin + self.origin, end + self.origin

    def range_if_given(self, query: Query) -> tuple[int, int] | None:
        return self.range(query) if "begin" in query else None

    def has_rows(self, table: str) -> bool:
        return bool(self.reel.table(table, ["id"]).num_rows)

    @functools.cached_property
    def devices(self) -> list[DeviceMemory]:
        """The history of each device's memory."""
        return list(device_memories(self.reel))

    def threads(self) -> list[dict[str, Any]]:
        """The threads that have lanes: their names, and those of their processes."""
        rows: list[dict[str, Any]] = self.reel.table("threads").to_pylist()
        return [
            {"process": row["process"], "id": row["id"], "os_id": row["os_id"], "name": row["name"]} for row in rows
        ]
