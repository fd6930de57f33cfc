"""Where the frames of each stack are: in which line of which file.

A line is told by a number, its place, so that stacks of many frames are joined and counted without their texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

_PLACES = """
    CREATE TEMP TABLE places AS
    SELECT row_number() OVER (ORDER BY file, line) AS place, file, line FROM (SELECT DISTINCT file, line FROM frames)"""

_PLACED_FRAMES = """
    CREATE TEMP TABLE placed_frames AS
    SELECT DISTINCT ON (f.process, f.id) f.process, f.id AS frame, f.function, p.place
    FROM frames AS f JOIN places AS p ON p.file IS NOT DISTINCT FROM f.file AND p.line IS NOT DISTINCT FROM f.line"""

_PLACED_STACKS = """
    CREATE TEMP TABLE placed_stacks AS
    SELECT s.process, s.stack, s.position, s.frame, f.place
    FROM (
        SELECT process, id AS stack, unnest(frames) AS frame, generate_subscripts(frames, 1) AS position
        FROM (SELECT DISTINCT ON (process, id) process, id, frames FROM stacks)
    ) AS s
    JOIN placed_frames AS f ON f.process = s.process AND f.frame = s.frame"""


def place_stacks(connection: duckdb.DuckDBPyConnection) -> None:
    """Make three tables; frames that a stack names and the reel does not have are in none of them.

    - `places`: place, file, line.
    - `placed_frames`: process, frame, function, place.
    - `placed_stacks`: process, stack, position (the innermost has the lowest), frame, place.
    """
    for statement in (_PLACES, _PLACED_FRAMES, _PLACED_STACKS):
        connection.execute(statement)
