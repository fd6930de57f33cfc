"""The table of `torchreel report`."""

from __future__ import annotations

from typing import Any

from torchreel import analyze
from torchreel.analyze.time.nesting import kinds_in
from torchreel.web.query import Query
from torchreel.web.viewed_reel import ViewedReel

_ROWS = 500


def averages(viewed: ViewedReel, query: Query) -> Any:
    table = analyze.averages(
        viewed.reel,
        query.words("by", "name"),
        sort=query.text("sort", "self"),
        kinds=query.words("kind") or None,
        within=viewed.range_if_given(query),
    )
    limit = query.number("limit", 1, 100_000, _ROWS)
    with viewed.asking() as connection:
        kinds = sorted(kinds_in(connection))
    return {"rows": table.slice(0, limit).to_pylist(), "all": table.num_rows, "kinds": kinds}
