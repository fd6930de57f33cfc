"""Hardware counters over time: how fast each grew, from the outermost calls of all threads."""

from __future__ import annotations

from typing import Any

import numpy as np

from torchreel.analyze.connection import opened
from torchreel.web.query import Query
from torchreel.web.viewed_reel import ViewedReel

_MOST = 8


def counter_names(viewed: ViewedReel) -> list[str]:
    with opened(viewed.reel, ("counters",)) as connection:
        rows = connection.sql(f"SELECT DISTINCT name FROM counters ORDER BY 1 LIMIT {_MOST}").fetchall()
    return [name for (name,) in rows]


def counters(viewed: ViewedReel, query: Query) -> Any:
    """In each of so many parts of a range, how much a counter grew per second."""
    begin, end = viewed.range(query)
    points = query.number("points", 1, 4_000, 1_000)
    edges = np.linspace(begin, max(end, begin + 1), points + 1)
    width = (edges[1] - edges[0]) / 1e9
    grown = {name: np.zeros(points) for name in counter_names(viewed)}
    with opened(viewed.reel, ("ops", "counters")) as connection:
        found = connection.execute(_OUTERMOST, [begin, end]).fetchnumpy()
    owners = np.stack([found["process"], found["thread"]], 1)
    for name in grown:
        named = np.asarray(found["name"] == name, bool)
        for owner in np.unique(owners[named], axis=0):
            chosen = named & (owners == owner).all(1)
            grown[name] += np.diff(_until(edges, *(found[key][chosen] for key in ("start_ns", "dur_ns", "value"))))
    return {"counters": [{"name": name, "rates": (values / width).tolist()} for name, values in grown.items()]}


def _until(moments: Any, starts: Any, durations: Any, values: Any) -> Any:
    """How much the calls of one thread, which do not overlap, had counted at each moment."""
    total = np.append(0, np.cumsum(values.astype(np.float64)))
    times = np.stack([starts, starts + durations], 1).astype(np.float64).ravel()
    return np.interp(moments, times, np.stack([total[:-1], total[1:]], 1).ravel())


_OUTERMOST = """
    SELECT o.process, o.thread, c.name::VARCHAR AS name, o.start_ns, o.dur_ns, c.value
    FROM counters AS c JOIN ops AS o ON o.process = c.process AND o.id = c.op
    WHERE o.depth = 0 AND NOT coalesce(o.async, false) AND o.start_ns < $2 AND o.start_ns + o.dur_ns > $1
    ORDER BY o.start_ns, o.id"""
