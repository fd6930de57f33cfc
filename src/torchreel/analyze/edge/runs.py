"""Runs: the calls of a deployed model in a reel of EdgeProfiler, and the ops that each of them made.

A run is a call of the model itself. What is below it is either a place, such as a submodule or a scripted function, or
an op. Ops of torch call ops: `outer_id` is the outermost one around a call, whose name a reader knows, and which is
counted once. What a runtime measured within something else that it measured are the ops themselves, within its
executor, the body of a loop or a delegate: there what is around them is a place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchreel.errors import EdgeError

if TYPE_CHECKING:
    import duckdb

    from torchreel.reel import Reel

TABLES = ("ops", "allocs", "inputs", "modules", "counters")

# Kinds that say where something happened: the ops are those below them.
_PLACES = "('module', 'python', 'torchscript', 'range')"

_RUNS = """
    CREATE TEMP TABLE runs AS
    SELECT (row_number() OVER (ORDER BY start_ns, id))::INTEGER AS run, process, id, thread, start_ns, dur_ns,
        start_ns + dur_ns AS end_ns
    FROM ops WHERE kind = 'module' AND parent IS NULL"""

_CALLS = f"""
    CREATE TEMP TABLE calls AS
    SELECT o.process, o.id, o.parent, o.kind, o.start_ns, o.flops, o.kind IN {_PLACES} OR c.parent IS NOT NULL AS place
    FROM ops AS o LEFT JOIN (SELECT DISTINCT process, parent FROM ops WHERE kind = 'backend') AS c
        ON o.kind = 'backend' AND c.process = o.process AND c.parent = o.id"""

# What has no call around it on its own thread, because the runtime has threads of its own, belongs to the run in whose
# time it began. FLOPs are those of the outermost call that has a formula: the calls in it do the same work.
_PLACED = """
    CREATE TEMP TABLE placed AS WITH RECURSIVE tree AS (
        SELECT o.process, o.id, r.run, CASE WHEN NOT o.place THEN o.id END AS outer_id,
            o.flops IS NOT NULL AS formula, o.flops AS flops
        FROM calls AS o JOIN runs AS r ON r.process = o.process AND r.id = o.parent
        UNION ALL
        SELECT o.process, o.id, r.run, CASE WHEN NOT o.place THEN o.id END, o.flops IS NOT NULL, o.flops
        FROM calls AS o ASOF JOIN runs AS r ON r.process = o.process AND o.start_ns >= r.start_ns
        WHERE o.parent IS NULL AND o.kind != 'module' AND o.start_ns < r.end_ns
        UNION ALL
        SELECT o.process, o.id, t.run, coalesce(t.outer_id, CASE WHEN NOT o.place THEN o.id END),
            t.formula OR o.flops IS NOT NULL, CASE WHEN NOT t.formula THEN o.flops END
        FROM calls AS o JOIN tree AS t ON t.process = o.process AND t.id = o.parent
    ) SELECT t.process, t.id, t.run, t.outer_id, t.flops, c.place
    FROM tree AS t JOIN calls AS c ON c.process = t.process AND c.id = t.id"""

# One row per op that is shown: its time, and what was done in it. `nested` shows calls within ops too, each with the
# time that it spent in no other, so that in both ways nothing is counted twice. A delegate may number its kernels.
_SHOWN = """
    CREATE TEMP TABLE shown AS
    SELECT p.run, o.process, o.id, o.backend, o.module, o.inputs, o.start_ns, {time} AS ns, w.flops, w.bytes,
        CASE WHEN o.backend IS NULL THEN o.name ELSE regexp_replace(o.name, ' #[0-9]+$', '') END AS name
    FROM placed AS p JOIN ops AS o ON o.process = p.process AND o.id = p.id
    LEFT JOIN (
        SELECT q.process, q.{owner} AS id, sum(q.flops)::BIGINT AS flops, sum(a.bytes)::BIGINT AS bytes
        FROM placed AS q LEFT JOIN (
            SELECT process, op, sum(size)::BIGINT AS bytes FROM allocs WHERE action = 'alloc' GROUP BY ALL
        ) AS a ON a.process = q.process AND a.op = q.id
        WHERE q.outer_id IS NOT NULL GROUP BY ALL
    ) AS w ON w.process = o.process AND w.id = o.id
    WHERE {condition}"""


def place_ops(connection: duckdb.DuckDBPyConnection, reel: Reel, nested: bool) -> None:
    """Make the tables `runs`, `placed` and `shown`, or say that this reel has no runs."""
    connection.execute(_RUNS)
    if not connection.sql("SELECT 1 FROM runs LIMIT 1").fetchall():
        raise EdgeError(
            f"{reel.path} holds no call of a model: call the model within torchreel.EdgeProfiler, or give the reel "
            "that `torchreel edge` wrote."
        )
    connection.execute(_CALLS)
    connection.execute(_PLACED)
    condition = "p.outer_id IS NOT NULL AND NOT p.place" if nested else "p.outer_id = p.id"
    time, owner = ("o.self_ns", "id") if nested else ("o.dur_ns", "outer_id")
    connection.execute(_SHOWN.format(time=time, owner=owner, condition=condition))
