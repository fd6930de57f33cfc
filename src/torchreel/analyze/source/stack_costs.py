"""What the calls of each stack cost, forward and backward apart: the sums that lines are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    import duckdb
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


def stack_costs(connection: duckdb.DuckDBPyConnection) -> pa.Table:
    """A row per stack: process, stack, calls, self_ns, backward_ns, alloc_bytes and flops, null if none is known.

    `backward_ns` is time in calls of kind backward and in all that these called.
    """
    processes = [int(row[0]) for row in connection.sql("SELECT DISTINCT process FROM ops ORDER BY 1").fetchall()]
    return pa.concat_tables([_SCHEMA.empty_table(), *(_of_process(connection, process) for process in processes)])


_SCHEMA = pa.schema(
    [
        ("process", pa.int32()),
        ("stack", pa.int32()),
        ("calls", pa.int64()),
        ("self_ns", pa.int64()),
        ("backward_ns", pa.int64()),
        ("alloc_bytes", pa.int64()),
        ("flops", pa.int64()),
    ]
)


def _of_process(connection: duckdb.DuckDBPyConnection, process: int) -> pa.Table:
    found = connection.sql(_CALLS.format(process=process)).fetchnumpy()
    stack, self_ns, flops = (_plain(found[name], -1) for name in ("stack", "self_ns", "flops"))
    has_stack = stack >= 0
    backward = _in_backward(_plain(found["id"], -1), _plain(found["parent"], -1), np.asarray(found["backward"], bool))
    size = int(stack.max(initial=-1)) + 1

    def summed(values: Any, where: NDArray[np.bool_]) -> Ints:
        """Exact: sums of whole numbers below 2**53 are, and longer than a hundred days no call takes."""
        return np.bincount(stack[where], None if values is None else values[where], size).astype(np.int64)

    calls = summed(None, has_stack)
    known = summed(None, has_stack & (flops >= 0)) > 0
    present = np.flatnonzero(calls)
    allocated = np.maximum(_plain(found["self_alloc_bytes"], 0), 0)
    columns = [
        np.full(len(present), process, np.int32),
        present.astype(np.int32),
        calls[present],
        summed(self_ns, has_stack)[present],
        summed(self_ns, has_stack & backward)[present],
        summed(allocated, has_stack)[present],
        pa.array(summed(np.maximum(flops, 0), has_stack)[present], mask=~known[present]),
    ]
    return pa.table(columns, schema=_SCHEMA)


def _plain(values: Any, otherwise: int) -> Ints:
    return np.ma.filled(values, otherwise).astype(np.int64, copy=False)


def _in_backward(ids: Ints, parents: Ints, backward: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which calls are backward ones or stand below one: a round for each level of calls below them."""
    if not backward.any():
        return backward
    order = np.argsort(ids, kind="stable")
    at = np.minimum(ids[order].searchsorted(parents), len(ids) - 1)
    above = order[at]
    has_parent = (parents >= 0) & (ids[above] == parents)
    found = backward.copy()
    open_rows = np.flatnonzero(has_parent & ~found)
    while len(open_rows):
        inside = found[above[open_rows]]
        if not inside.any():
            break
        found[open_rows[inside]] = True
        open_rows = open_rows[~inside]
    return found


_CALLS = """
    SELECT id, parent, kind = 'backward' AS backward, stack, self_ns, self_alloc_bytes, flops
    FROM ops WHERE process = {process}"""
