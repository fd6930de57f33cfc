"""Tour: the files of the source in the order in which the run entered them, and the functions of each.

A file is entered with the first call whose stack holds it, at whatever depth; of files that one call enters at once,
the outermost comes first. What the stacks do not hold, a tour cannot know: a file that ran no op is not there, nor is
a function; how long before its first op one was entered is not known; the stack of a call in backward is that of its
forward call, so it enters nothing new; frames without a file or a line have no place to go to.

Of several processes the one with the lowest rank comes first, then the one that started the others: the files that
the others entered besides follow after all of its own, and so do functions.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from torchreel.analyze.connection import opened
from torchreel.analyze.source.placed_stacks import place_stacks
from torchreel.reel import Reel

# `moment` orders what was entered: turns of processes, then time, then calls of the same moment, then the outermost.
_ENTERED = """
    WITH
    begun_at AS (SELECT start_ns FROM processes UNION ALL SELECT start_ns FROM ops),
    turns AS (SELECT process, row_number() OVER (ORDER BY rank NULLS LAST, process) AS turn FROM processes),
    begun AS (
        SELECT process, stack, min({'start_ns': start_ns, 'id': id}) AS first
        FROM ops WHERE stack >= 0 AND start_ns IS NOT NULL GROUP BY process, stack
    ),
    entered AS (
        SELECT p.file, f.function, p.line, b.process, b.first.start_ns AS start_ns,
            {'turn': coalesce(turn, 1 << 40), 'process': b.process, 'at': b.first, 'depth': -s.position} AS moment
        FROM begun AS b JOIN placed_stacks AS s USING (process, stack) JOIN placed_frames AS f USING (process, frame)
        JOIN places AS p ON p.place = s.place LEFT JOIN turns ON turns.process = b.process
        WHERE p.file IS NOT NULL AND p.line IS NOT NULL
    )
    SELECT file, coalesce(function, '') AS function, arg_min(line, moment) AS line, arg_min(process, moment) AS process,
        arg_min(start_ns, moment) - (SELECT min(start_ns) FROM begun_at) AS first_ns
    FROM entered GROUP BY ALL ORDER BY min(moment)"""

_FUNCTION = pa.struct([("function", pa.string()), ("line", pa.int32())])
_SCHEMA = pa.schema(
    [("file", pa.string()), ("process", pa.int32()), ("first_ns", pa.int64()), ("functions", pa.list_(_FUNCTION))]
)


def tour(reel: Reel) -> pa.Table:
    """A row per file, in the order in which they were entered.

    Columns: file; process, which entered it first; first_ns, when, since the reel's beginning; functions, those of the
    file in the order in which they were entered, each with its name and the line of it that was seen first.
    """
    with opened(reel, ("ops", "stacks", "frames", "processes")) as connection:
        place_stacks(connection)
        entered = connection.sql(_ENTERED).to_arrow_table().to_pylist()
    files: dict[str, dict[str, Any]] = {}
    for row in entered:
        found = {"file": row["file"], "process": row["process"], "first_ns": row["first_ns"], "functions": []}
        file = files.setdefault(row["file"], found)
        file["functions"].append({"function": row["function"], "line": row["line"]})
    return pa.Table.from_pylist(list(files.values()), schema=_SCHEMA)
