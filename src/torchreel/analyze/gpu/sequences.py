"""Which kernels an op launches, one after the other: each op's sequences, how often they occur, and what they take.

The kernels of a call are those that it and the calls inside of it launched, in the order in which they began.
`device_ns` is the sum of their times, `cpu_ns` the time of the calls. An op that an op of its own name calls is that
call, passed on, and is not counted again.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from torchreel.analyze.connection import opened
from torchreel.analyze.gpu.activities import Activities
from torchreel.analyze.gpu.calls import Calls
from torchreel.reel import Reel
from torchreel.reel.columns import NOTHING, Ints, Mask

# Kinds that launch nothing of their own: they say where, or are the launch itself.
_NO_OPS = ("range", "module", "python", "runtime", "driver", "overhead")

SCHEMA = pa.schema(
    [
        ("op", pa.string()),
        ("kernels", pa.list_(pa.string())),
        ("count", pa.int64()),
        ("device_ns", pa.int64()),
        ("cpu_ns", pa.int64()),
    ]
)


def sequences(reel: Reel, found: Activities) -> pa.Table:
    """A row per name of an op and sequence of kernels, the one that took most of the device's time first."""
    if not len(found):
        return SCHEMA.empty_table()
    calls = Calls.of(reel, "parent", "kind", "name", "dur_ns")
    name, names = calls.texts("name")
    parent = calls.parents()
    counted = ~calls.of_kind(*_NO_OPS)
    counted &= (parent == NOTHING) | (name[parent] != name)
    call, activity = _pairs(calls.rows(found.process, found.op), parent, counted)
    pairs = pa.table(
        {
            "call": call,
            "name": name[call],
            "cpu_ns": calls.ints("dur_ns")[call],
            "kernel": found.name[activity] % len(found.words.names),
            "dur_ns": found.dur[activity],
            "start_ns": found.start[activity],
            "activity": activity,
        }
    )
    with opened(reel, ()) as connection:
        connection.register("pairs", pairs)
        table = connection.sql(_SEQUENCES).to_arrow_table()
    return _named(table, names, found.words.names)


def _pairs(innermost: Ints, parent: Ints, counted: Mask) -> tuple[Ints, Ints]:
    """Each activity with each counted call that it lies in."""
    row, activity = innermost, np.arange(len(innermost))
    rows, activities = [], []
    while len(row):
        inside = row != NOTHING
        row, activity = row[inside], activity[inside]
        rows.append(row[counted[row]])
        activities.append(activity[counted[row]])
        row = parent[row]
    return np.concatenate(rows), np.concatenate(activities)


_SEQUENCES = """
    WITH calls AS (
        SELECT name, any_value(cpu_ns) AS cpu_ns, sum(dur_ns)::BIGINT AS device_ns,
            list(kernel ORDER BY start_ns, activity) AS kernels
        FROM pairs GROUP BY call, name
    )
    SELECT name, kernels, count(*) AS count, sum(device_ns)::BIGINT AS device_ns, sum(cpu_ns)::BIGINT AS cpu_ns
    FROM calls GROUP BY ALL ORDER BY device_ns DESC, count DESC, name, kernels"""


def _named(table: pa.Table, ops: list[str], kernels: list[str]) -> pa.Table:
    """The same with texts in place of numbers."""
    lists = table["kernels"].combine_chunks()
    if isinstance(lists, pa.ChunkedArray):  # of no rows
        return SCHEMA.empty_table()
    texts = pa.ListArray.from_arrays(lists.offsets, pa.array(kernels).take(lists.values))
    op = pa.array(ops).take(table["name"].combine_chunks())
    return pa.Table.from_arrays([op, texts, *(table[name] for name in SCHEMA.names[2:])], schema=SCHEMA)
