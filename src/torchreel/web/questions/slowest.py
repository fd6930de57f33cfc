"""The longest calls of a row of the op table or of the tree of modules."""

from __future__ import annotations

from typing import Any

from torchreel.analyze.time.averages import GROUPS
from torchreel.analyze.time.slowest import slowest as slowest_calls
from torchreel.errors import OptionError
from torchreel.web.query import Query
from torchreel.web.viewed_reel import ViewedReel


def slowest(viewed: ViewedReel, query: Query) -> Any:
    """The calls of a group, by its texts: name=, inputs=, module= and the other columns of the table."""
    where = {group: query.values[group] for group in GROUPS if group in query.values}
    if not where:
        raise OptionError(f"Say of what: give one or more of {', '.join(GROUPS)}.")
    limit = query.number("limit", 1, 1_000, 20)
    rows = slowest_calls(viewed.reel, where, limit, viewed.range_if_given(query)).to_pylist()
    return {"rows": [{**row, "begin": row["start_ns"] - viewed.origin} for row in rows]}
