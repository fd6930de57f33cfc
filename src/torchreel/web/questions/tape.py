"""What did the step compute? The ops of the tapes in the reel, each with its call."""

from __future__ import annotations

from typing import Any

from torchreel.analyze.connection import opened
from torchreel.web.query import Query, rows_of
from torchreel.web.viewed_reel import ViewedReel


def tape(viewed: ViewedReel, query: Query) -> Any:
    """The tapes there are, and the ops of one: the one that is named, or that holds the call `op`, else the first."""
    with opened(viewed.reel, ("ops", "tape_ops")) as connection:
        tapes = rows_of(connection.sql(_TAPES))
        if not tapes:
            return {"tapes": [], "chosen": None, "rows": []}
        chosen = query.number("tape", 0, len(tapes) - 1, 0)
        if "process" in query and "op" in query:
            wanted = [query.number(name, 0, 1 << 62, 0) for name in ("process", "op")]
            for process, name in connection.execute(_HOLDER, wanted).fetchall():
                chosen = next(n for n, each in enumerate(tapes) if (each["process"], each["tape"]) == (process, name))
        limit = query.number("limit", 1, 100_000, 5_000)
        which = [tapes[chosen]["process"], tapes[chosen]["tape"], limit]
        return {"tapes": tapes, "chosen": chosen, "rows": rows_of(connection.execute(_ROWS, which))}


_TAPES = """
    SELECT process, tape, count(*) AS ops, count(*) FILTER (WHERE backward) AS backward FROM tape_ops
    GROUP BY ALL ORDER BY process, tape"""
_HOLDER = "SELECT process, tape FROM tape_ops WHERE process = $1 AND op = $2 ORDER BY tape LIMIT 1"
_ROWS = """
    SELECT t.process, t.tape, t."index", t.name, t.op, t.module, t.file, t.line, t.backward, t.forward, t.inserted,
        t.inputs, t.outputs, o.dur_ns, o.self_ns, o.alloc_bytes, o.flops
    FROM tape_ops AS t LEFT JOIN ops AS o ON o.process = t.process AND o.id = t.op
    WHERE t.process = $1 AND t.tape = $2 ORDER BY t."index" LIMIT $3"""
