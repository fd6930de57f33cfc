"""Lines: what each line of the source cost, forward and backward apart.

What the columns mean, for a line:

- `self_ns` is the own time of the calls whose innermost frame is the line; over all lines it adds up to the own time
  of all calls that have a stack, to the nanosecond. `calls`, `alloc_bytes` and `flops` are of the same calls.
- `backward_ns` is the part of it in calls of kind backward and all that these called. They carry the stack of their
  forward call, so a line is charged with the backward that it caused. `forward_ns` is the rest.
- `total_ns` is the own time of all calls that have the line anywhere in their stack, each call once.
- `alloc_bytes` counts what calls allocated and did not free themselves; `flops` is null where no formula is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from torchreel.analyze.connection import Range, opened
from torchreel.analyze.source.frames import LIBRARY, NATIVE, TORCH, USER, frame_of
from torchreel.analyze.source.stack_costs import stack_costs
from torchreel.reel import Reel

if TYPE_CHECKING:
    import duckdb

OWNERS = {USER: "user", LIBRARY: "library", TORCH: "torch", NATIVE: "native"}

# Each stack with its lines, the innermost first.
_PLACED = """
    CREATE TEMP TABLE placed AS
    SELECT s.process, s.stack, s.position, f.file, f.line, f.function
    FROM (
        SELECT process, id AS stack, unnest(frames) AS frame, generate_subscripts(frames, 1) AS position FROM stacks
    ) AS s
    JOIN frames AS f ON f.process = s.process AND f.id = s.frame"""

_LINES = """
    WITH
    first AS (
        SELECT process, stack, min(position) AS position FROM placed
        WHERE {owner} GROUP BY ALL
    ),
    own AS (
        SELECT file, line, min(function) AS function, sum(calls)::BIGINT AS calls, sum(self_ns)::BIGINT AS self_ns,
            sum(backward_ns)::BIGINT AS backward_ns, sum(alloc_bytes)::BIGINT AS alloc_bytes,
            sum(flops)::BIGINT AS flops
        FROM costs JOIN first USING (process, stack) JOIN placed USING (process, stack, position)
        GROUP BY file, line
    ),
    once AS (SELECT process, stack, file, line, min(function) AS function FROM placed WHERE {owner} GROUP BY ALL),
    total AS (
        SELECT file, line, min(function) AS function, sum(self_ns)::BIGINT AS total_ns
        FROM once JOIN costs USING (process, stack) GROUP BY file, line
    )
    SELECT total.file, total.line, coalesce(own.function, total.function) AS function,
        coalesce(calls, 0)::BIGINT AS calls, coalesce(self_ns, 0)::BIGINT AS self_ns,
        coalesce(self_ns - backward_ns, 0)::BIGINT AS forward_ns, coalesce(backward_ns, 0)::BIGINT AS backward_ns,
        total_ns, coalesce(alloc_bytes, 0)::BIGINT AS alloc_bytes, flops
    FROM total LEFT JOIN own ON own.file = total.file AND own.line = total.line
    ORDER BY self_ns DESC, total_ns DESC, total.file, total.line"""


def lines(reel: Reel, within: Range | None = None) -> pa.Table:
    """The lines of all stacks, the costliest first; of calls that began in a range of time, if one is given.

    Columns: file, line, function, calls, self_ns, forward_ns, backward_ns, total_ns, alloc_bytes, flops, and owner:
    user, library, torch (with Python's own library) or native.
    """
    with opened(reel, ("ops", "stacks", "frames"), within) as connection:
        owners = _prepare(connection)
        table = connection.sql(_LINES.format(owner="true")).to_arrow_table()
    return table.append_column("owner", pa.array([owners[file] for file in table["file"].to_pylist()], pa.string()))


def user_lines(reel: Reel, within: Range | None = None) -> pa.Table:
    """The same for the user's own lines: a call counts as its innermost line of the user's, whatever it led to."""
    with opened(reel, ("ops", "stacks", "frames"), within) as connection:
        owners = _prepare(connection)
        own = pa.table({"file": pa.array([file for file, owner in owners.items() if owner == "user"], pa.string())})
        connection.register("own_files", own)
        return connection.sql(_LINES.format(owner="file IN (SELECT file FROM own_files)")).to_arrow_table()


def _prepare(connection: duckdb.DuckDBPyConnection) -> dict[str | None, str]:
    """Make the tables `costs`, the measures of each stack, and `placed`, its lines. Gives the owner of each file."""
    connection.register("costs", stack_costs(connection))
    connection.execute(_PLACED)
    files = [row[0] for row in connection.sql("SELECT DISTINCT file FROM frames ORDER BY 1").fetchall()]
    return {file: OWNERS[frame_of(file or "", 0, "").kind] for file in files}
