"""What each line of the source costs, and its text."""

from __future__ import annotations

from typing import Any

from torchreel.analyze.connection import opened
from torchreel.analyze.source.lines import lines as cost_of_lines
from torchreel.errors import OptionError
from torchreel.web.query import Query, rows_of
from torchreel.web.sources import source_of_file
from torchreel.web.viewed_reel import ViewedReel


def lines(viewed: ViewedReel, query: Query) -> Any:
    """What lines of the source cost; of one file, if it is named."""
    rows = cost_of_lines(viewed.reel, viewed.range_if_given(query)).to_pylist()
    if "file" in query:
        rows = [row for row in rows if row["file"] == query.text("file")]
    return {"rows": rows, "origin": viewed.origin}


def source(viewed: ViewedReel, query: Query) -> Any:
    """The text of a file that the reel's frames name, as one process ran it, or the first that has it."""
    process = query.number("process", 0, 1 << 31, 0) if "process" in query else None
    return source_of_file(viewed.reel, query.text("file"), process)


def source_of_frame(viewed: ViewedReel, process: int, frame: int) -> Any:
    """The text of the file of a frame, with its line and function; ids of frames are those of a process."""
    with opened(viewed.reel, ("frames",)) as connection:
        found = rows_of(connection.execute(_FRAME, [process, frame]))
    if not found:
        raise OptionError(f"There is no frame {frame} in process {process}.")
    return {**source_of_file(viewed.reel, found[0]["file"] or "", process), **found[0]}


_FRAME = "SELECT id AS frame, file, line, function FROM frames WHERE process = $1 AND id = $2"
