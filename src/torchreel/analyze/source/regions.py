"""Regions: what parts of source files cost: functions, classes, whole files, single lines.

What the columns mean, for a region, which is some lines of a file:

- `self_ns` is the own time of the calls whose innermost frame lies in it; `calls`, `alloc_bytes` and `flops` are of the
  same calls, `forward_ns` and `backward_ns` are the two parts of it, as in `lines`.
- `total_ns` is the own time of all calls that have a frame in it, each call once; `total_backward_ns` is the part of it
  in calls of kind backward and all that these called.

A region that no call entered has zeros. A reel of which no call has a stack says nothing of regions: all is null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from torchreel.analyze.connection import opened
from torchreel.analyze.source.placed_stacks import place_stacks
from torchreel.analyze.source.stack_costs import prepare_stack_costs
from torchreel.reel import Reel

if TYPE_CHECKING:
    import duckdb
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

MEASURES = ("calls", "self_ns", "forward_ns", "backward_ns", "total_ns", "alloc_bytes", "flops", "total_backward_ns")

_COSTS = """
    WITH
    innermost AS (SELECT process, stack, arg_min(place, position) AS place FROM placed_stacks GROUP BY ALL),
    ended AS (
        SELECT place, sum(calls) AS calls, sum(self_ns) AS self_ns, sum(backward_ns) AS backward_ns,
            sum(alloc_bytes) AS alloc_bytes, sum(flops) AS flops
        FROM costs JOIN innermost USING (process, stack) GROUP BY place
    ),
    own AS (
        SELECT region, sum(calls)::BIGINT AS calls, sum(self_ns)::BIGINT AS self_ns,
            sum(backward_ns)::BIGINT AS backward_ns, sum(alloc_bytes)::BIGINT AS alloc_bytes,
            sum(flops)::BIGINT AS flops
        FROM ended JOIN held USING (place) GROUP BY region
    ),
    total AS (
        SELECT region, sum(self_ns)::BIGINT AS total_ns, sum(backward_ns)::BIGINT AS total_backward_ns
        FROM (SELECT DISTINCT process, stack, region FROM placed_stacks JOIN held USING (place))
        JOIN costs USING (process, stack) GROUP BY region
    )
    SELECT region, coalesce(calls, 0) AS calls, coalesce(self_ns, 0) AS self_ns,
        coalesce(self_ns - backward_ns, 0) AS forward_ns, coalesce(backward_ns, 0) AS backward_ns, total_ns,
        coalesce(alloc_bytes, 0) AS alloc_bytes, flops, total_backward_ns
    FROM total LEFT JOIN own USING (region)"""


def regions(reel: Reel, regions: pa.Table, paths: pa.Table | None = None) -> pa.Table:
    """A row per row of `regions`, in their order: its id, and what it cost.

    `regions` has the columns id, file, begin and end: the first and the last line. A file is named as the reel names
    it; with `paths`, a table of path (in the reel, null for frames without one) and file, a file may have any name, and
    several paths.
    """
    with opened(reel, ("ops", "stacks", "frames")) as connection:
        prepare_stack_costs(connection)
        if not connection.sql("SELECT 1 FROM costs LIMIT 1").fetchall():
            return _unknown(regions)
        place_stacks(connection)
        connection.register("held", _held(_places(connection, paths), regions))
        found = connection.sql(_COSTS).to_arrow_table()
    return _in_order(regions, found)


def _places(connection: duckdb.DuckDBPyConnection, paths: pa.Table | None) -> pa.Table:
    """The lines of all stacks: place, file and line. A frame without a line is in its file, and in no function."""
    if paths is None:
        asked = "SELECT place, file, coalesce(line, 0) AS line FROM places WHERE file IS NOT NULL"
    else:
        connection.register("paths", paths)
        asked = (
            "SELECT place, n.file, coalesce(line, 0) AS line FROM places AS p"
            " JOIN (SELECT DISTINCT path, file FROM paths) AS n ON n.path IS NOT DISTINCT FROM p.file"
        )
    table: pa.Table = connection.sql(asked).to_arrow_table()
    return table


def _held(places: pa.Table, regions: pa.Table) -> pa.Table:
    """Which region holds which place, as rows of region and place.

    The lines of a file stand side by side, so a region is a run of them, found by its ends: work grows with the number
    of regions and of what they hold, not with their product.
    """
    import pyarrow.compute as pc  # slow to import, and few questions need it

    numbers = pc.unique(places["file"])
    files = pc.index_in(places["file"], numbers).to_numpy().astype(np.int64)
    keys = _key(files, places["line"])
    order = np.argsort(keys, kind="stable")
    keys, place = keys[order], places["place"].to_numpy()[order]

    file = pc.fill_null(pc.index_in(regions["file"], numbers.cast(regions["file"].type)), -1)
    at = file.to_numpy().astype(np.int64)
    first = keys.searchsorted(_key(at, regions["begin"]))
    past = keys.searchsorted(_key(at, regions["end"]), side="right")
    count = np.where(at >= 0, np.maximum(past - first, 0), 0)
    # The runs one after the other: each begins anew where the one before it ended.
    within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    return pa.table(
        {"region": np.repeat(np.arange(len(count)), count), "place": place[np.repeat(first, count) + within]}
    )


def _key(files: Ints, lines: pa.ChunkedArray) -> Ints:
    """A number that orders lines by file, then by line: of a line there are 32 bits."""
    line = np.clip(lines.to_numpy().astype(np.int64), -(1 << 31), (1 << 31) - 1)
    key: Ints = (files << 32) + line
    return key


def _in_order(regions: pa.Table, found: pa.Table) -> pa.Table:
    """The costs for each region: zeros for those that no call entered."""
    import pyarrow.compute as pc  # slow to import, and few questions need it

    row = np.full(regions.num_rows, -1)
    row[found["region"].to_numpy()] = np.arange(found.num_rows)
    taken = found.take(pa.array(row, mask=row < 0))
    columns = {name: taken[name] if name == "flops" else pc.fill_null(taken[name], 0) for name in MEASURES}
    return pa.table({"id": regions["id"], **columns})


def _unknown(regions: pa.Table) -> pa.Table:
    return pa.table({"id": regions["id"], **{name: pa.nulls(regions.num_rows, pa.int64()) for name in MEASURES}})
