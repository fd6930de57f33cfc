"""What each line of the source costs, and its text."""

from __future__ import annotations

from typing import Any

from torchreel.analyze.connection import opened
from torchreel.analyze.source.lines import lines as cost_of_lines
from torchreel.errors import OptionError
from torchreel.web.query import Query
from torchreel.web.sources import text_of
from torchreel.web.viewed_reel import ViewedReel


def lines(viewed: ViewedReel, query: Query) -> Any:
    """What lines of the source cost; of one file, if it is named."""
    rows = cost_of_lines(viewed.reel, viewed.range_if_given(query)).to_pylist()
    if "file" in query:
        rows = [row for row in rows if row["file"] == query.text("file")]
    return {"rows": rows, "origin": viewed.origin}


def source(viewed: ViewedReel, query: Query) -> Any:
    """The text of a file that the reel's frames name."""
    file = query.text("file")
    with opened(viewed.reel, ("frames",)) as connection:
        named = connection.execute("SELECT count(*) FROM frames WHERE file = $1", [file]).fetchall()[0][0]
    if not named:
        raise OptionError("No frame of this reel is in that file.")
    text, why = text_of(file)
    return {"file": file, "text": text, "why": why}
