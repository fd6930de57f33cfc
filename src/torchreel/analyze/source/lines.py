"""Lines: what each line of the source cost, forward and backward apart.

What the columns mean, for a line:

- `self_ns` is the own time of the calls whose innermost frame is the line; over all lines it adds up to the own time
  of all calls that have a stack, to the nanosecond. `calls`, `alloc_bytes` and `flops` are of the same calls.
- `backward_ns` is the part of it in calls of kind backward and all that these called. They carry the stack of their
  forward call, so a line is charged with the backward that it caused. `forward_ns` is the rest.
- `total_ns` is the own time of all calls that have the line anywhere in their stack, each call once, and
  `total_backward_ns` the part of it in calls of kind backward and all that these called. A line that calls into a
  library has next to no own time: these two say what it caused.
- `alloc_bytes` counts what calls allocated and did not free themselves; `flops` is null where no formula is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from torchreel.analyze.connection import Range, opened
from torchreel.analyze.source.frames import LIBRARY, NATIVE, TORCH, USER, frame_of
from torchreel.analyze.source.placed_stacks import place_stacks
from torchreel.analyze.source.stack_costs import prepare_stack_costs
from torchreel.reel import Reel

if TYPE_CHECKING:
    import duckdb

OWNERS = {USER: "user", LIBRARY: "library", TORCH: "torch", NATIVE: "native"}

_LINES = """
    WITH
    shown AS (SELECT process, stack, position, frame, place FROM placed_stacks WHERE {shown}),
    innermost AS (SELECT process, stack, min(position) AS position FROM shown GROUP BY ALL),
    ended AS (
        SELECT process, frame, place, sum(calls) AS calls, sum(self_ns) AS self_ns, sum(backward_ns) AS backward_ns,
            sum(alloc_bytes) AS alloc_bytes, sum(flops) AS flops
        FROM costs JOIN innermost USING (process, stack) JOIN shown USING (process, stack, position)
        GROUP BY process, frame, place
    ),
    own AS (
        SELECT place, min(function) AS function, sum(calls)::BIGINT AS calls, sum(self_ns)::BIGINT AS self_ns,
            sum(backward_ns)::BIGINT AS backward_ns, sum(alloc_bytes)::BIGINT AS alloc_bytes,
            sum(flops)::BIGINT AS flops
        FROM ended JOIN placed_frames USING (process, frame, place) GROUP BY place
    ),
    total AS (
        SELECT place, sum(self_ns)::BIGINT AS total_ns, sum(backward_ns)::BIGINT AS total_backward_ns
        FROM (SELECT DISTINCT process, stack, place FROM shown) JOIN costs USING (process, stack) GROUP BY place
    ),
    named AS (
        SELECT place, min(function) AS function
        FROM (SELECT DISTINCT process, frame, place FROM shown SEMI JOIN costs USING (process, stack))
        JOIN placed_frames USING (process, frame, place) GROUP BY place
    )
    SELECT file, line, coalesce(own.function, named.function) AS function,
        coalesce(calls, 0)::BIGINT AS calls, coalesce(self_ns, 0)::BIGINT AS self_ns,
        coalesce(self_ns - backward_ns, 0)::BIGINT AS forward_ns, coalesce(backward_ns, 0)::BIGINT AS backward_ns,
        total_ns, coalesce(alloc_bytes, 0)::BIGINT AS alloc_bytes, flops, total_backward_ns
    FROM total JOIN named USING (place) JOIN places USING (place) LEFT JOIN own USING (place)
    ORDER BY self_ns DESC, total_ns DESC, file, line"""


_OWN = "place IN (SELECT place FROM places WHERE file IN (SELECT file FROM own_files))"


def lines(reel: Reel, within: Range | None = None) -> pa.Table:
    """The lines of all stacks, the costliest first; of calls that began in a range of time, if one is given.

    Columns: file, line, function, calls, self_ns, forward_ns, backward_ns, total_ns, alloc_bytes, flops,
    total_backward_ns, and owner: user, library, torch (with Python's own library) or native.
    """
    with opened(reel, ("ops", "stacks", "frames"), within) as connection:
        owners = _prepare(connection)
        table = connection.sql(_LINES.format(shown="true")).to_arrow_table()
    return table.append_column("owner", pa.array([owners[file] for file in table["file"].to_pylist()], pa.string()))


def user_lines(reel: Reel, within: Range | None = None) -> pa.Table:
    """The same for the user's own lines: a call counts as its innermost line of the user's, whatever it led to."""
    with opened(reel, ("ops", "stacks", "frames"), within) as connection:
        owners = _prepare(connection)
        own = pa.table({"file": pa.array([file for file, owner in owners.items() if owner == "user"], pa.string())})
        connection.register("own_files", own)
        return connection.sql(_LINES.format(shown=_OWN)).to_arrow_table()


def _prepare(connection: duckdb.DuckDBPyConnection) -> dict[str | None, str]:
    """Make the tables that lines are summed up from. Gives the owner of each file."""
    prepare_stack_costs(connection)
    place_stacks(connection)
    files = [row[0] for row in connection.sql("SELECT DISTINCT file FROM frames ORDER BY 1").fetchall()]
    return {file: OWNERS[frame_of(file or "", 0, "").kind] for file in files}
