"""What the calls of each stack cost, forward and backward apart: the sums that lines and functions are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchreel.analyze.source.backward_calls import mark_backward_calls

if TYPE_CHECKING:
    import duckdb

# Of calls as `o`, with `b` where they are of backward. Whole numbers of any size add up exactly.
SUMS = """
    count(*) AS calls,
    coalesce(sum(o.self_ns), 0)::BIGINT AS self_ns,
    coalesce(sum(greatest(o.self_alloc_bytes, 0)), 0)::BIGINT AS alloc_bytes,
    sum(o.flops) FILTER (WHERE o.flops >= 0)::BIGINT AS flops"""
CALLS = "ops AS o LEFT JOIN backward_calls AS b ON b.process = o.process AND b.id = o.id"


def prepare_stack_costs(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the table `costs`: process, stack, calls, self_ns, alloc_bytes, flops (null if none is known), backward_ns.

    `backward_ns` is time in calls of kind backward and in all that these called.
    """
    mark_backward_calls(connection)
    connection.execute(
        f"""
        CREATE TEMP TABLE costs AS
        SELECT o.process, o.stack, {SUMS},
            coalesce(sum(o.self_ns) FILTER (WHERE b.id IS NOT NULL), 0)::BIGINT AS backward_ns
        FROM {CALLS} WHERE o.stack >= 0 GROUP BY ALL"""
    )
