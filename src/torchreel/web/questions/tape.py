"""What did the step compute? The ops of the tapes in the reel, each with its call."""

from __future__ import annotations

from typing import Any

from torchreel.analyze.connection import opened
from torchreel.web.query import Query, rows_of
from torchreel.web.viewed_reel import ViewedReel


def tape(viewed: ViewedReel, query: Query) -> Any:
    with opened(viewed.reel, ("ops", "tape_ops")) as connection:
        return {"rows": rows_of(connection.execute(_TAPE, [query.number("limit", 1, 100_000, 5_000)]))}


_TAPE = """
    SELECT t.process, t.tape, t."index", t.name, t.op, t.module, t.file, t.line, t.backward, t.forward, t.inserted,
        t.inputs, t.outputs, o.dur_ns, o.self_ns, o.self_alloc_bytes AS alloc_bytes
    FROM tape_ops AS t LEFT JOIN ops AS o ON o.process = t.process AND o.id = t.op
    ORDER BY t.process, t.tape, t."index" LIMIT $1"""
