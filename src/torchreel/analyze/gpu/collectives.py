"""Collectives by group, name and size: how often, how long, how much of it exposed, and how fast.

- `ns` is the sum over their kernels; where there are none, because a CPU's backend made them, from start to end.
- `exposed_ns` is the part of it in which no compute ran on the same device; of a CPU it is not known.
- `bus_gbps` is bytes / ns as NCCL's tests count it, so that it can be compared with the speed of the links: times
  2(n-1)/n for an all-reduce of n ranks, (n-1)/n for gather, scatter and all-to-all, 1 for the rest. It is null where
  bytes or ranks are not known. The time is that from the last rank's start, if the reel has several ranks; of one rank
  alone it is its own, waiting included.

A kernel whose trace does not say which collective it is has the name that its own name says, and no group or bytes.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

from torchreel.analyze.connection import opened
from torchreel.analyze.gpu.activities import COMMUNICATION, COMPUTE, Activities
from torchreel.analyze.gpu.intervals import covered
from torchreel.analyze.gpu.ranks import transfers
from torchreel.reel import Reel

SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        ("group", pa.string()),
        ("count", pa.int64()),
        ("bytes", pa.int64()),
        ("ns", pa.int64()),
        ("exposed_ns", pa.int64()),
        ("bus_gbps", pa.float64()),
    ]
)

_SAID = re.compile(
    r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|send_?recv|broadcast|barrier|gather|scatter|reduce|send|recv",
    re.IGNORECASE,
)


def collectives(reel: Reel, found: Activities, whole: bool = True) -> pa.Table:
    """A row per group, name and size, the one that took longest first.

    `whole` says that the activities are all that there are: those of CPUs, which have none, are then counted, too.
    """
    kernels = pa.concat_tables([_KERNELS.empty_table(), *(_of_device(own) for _, _, own in found.by_device())])
    with opened(reel, ("collectives", "process_groups")) as connection:
        connection.register("own", kernels)
        connection.register("transfer", transfers(reel))
        table: pa.Table = connection.sql(_COLLECTIVES, params=[whole]).to_arrow_table()
        return table.cast(SCHEMA)


_KERNELS = pa.schema(
    [
        ("process", pa.int32()),
        ("collective", pa.int64()),
        ("name", pa.string()),
        ("ns", pa.int64()),
        ("exposed_ns", pa.int64()),
    ]
)


def _of_device(own: Activities) -> pa.Table:
    """The communication of one device; what is not told apart by the trace is told apart by its name."""
    talk = own.take(own.kind == COMMUNICATION)
    said = [_said(name) for name in own.words.names]
    exposed = talk.dur - covered(own.busy(COMPUTE), talk.start, talk.end)
    names = pa.array(said, pa.string()).take(pa.array(talk.name % len(said)))
    columns = [talk.process, np.where(talk.collective < 0, -1, talk.collective), names, talk.dur, exposed]
    return pa.Table.from_arrays([pa.array(column) for column in columns], names=_KERNELS.names).cast(_KERNELS)


def _said(name: str) -> str:
    """The collective that the name of a kernel names, as torch spells it: ncclKernel_AllReduce_RING -> allreduce."""
    match = _SAID.search(name)
    return match[0].replace("_", "").lower() if match else name


_COLLECTIVES = """
    WITH timed AS (
        SELECT process, collective AS id, name AS said, sum(ns)::BIGINT AS ns, sum(exposed_ns)::BIGINT AS exposed_ns,
            count(*) AS kernels
        FROM own GROUP BY process, collective, name
    ), one AS (
        SELECT coalesce(c.name, t.said) AS name, g.name AS group_name, g.size, c.bytes, t.ns, t.exposed_ns,
            CASE WHEN c.id IS NULL THEN t.kernels ELSE 1 END AS count, coalesce(x.transfer_ns, t.ns) AS transfer_ns
        FROM timed AS t
        LEFT JOIN collectives AS c ON c.process = t.process AND c.id = t.id
        LEFT JOIN process_groups AS g ON g.process = c.process AND g.id = c."group"
        LEFT JOIN transfer AS x ON x.process = c.process AND x.id = c.id
        UNION ALL
        SELECT c.name, g.name, g.size, c.bytes, c.end_ns - c.start_ns, NULL, 1,
            coalesce(x.transfer_ns, c.end_ns - c.start_ns)
        FROM collectives AS c
        LEFT JOIN process_groups AS g ON g.process = c.process AND g.id = c."group"
        LEFT JOIN transfer AS x ON x.process = c.process AND x.id = c.id
        WHERE $1 AND c.kernel IS NULL AND c.start_ns IS NOT NULL AND c.end_ns IS NOT NULL
            AND (c.process, c.id) NOT IN (SELECT (process, id) FROM timed)
    ), sized AS (
        SELECT *, bytes AS size_bytes, bytes * CASE
            WHEN regexp_matches(name, 'all_?reduce', 'i') THEN 2.0 * (size - 1) / size
            WHEN regexp_matches(name, 'gather|scatter|all_?to_?all', 'i') THEN 1.0 * (size - 1) / size
            ELSE 1.0 END AS moved
        FROM one
    )
    SELECT name, group_name AS "group", sum(count)::BIGINT AS count, sum(bytes)::BIGINT AS bytes, sum(ns)::BIGINT AS ns,
        sum(exposed_ns)::BIGINT AS exposed_ns, sum(moved) / nullif(sum(transfer_ns), 0) AS bus_gbps
    FROM sized GROUP BY name, group_name, size_bytes
    ORDER BY ns DESC, name, "group", bytes"""
