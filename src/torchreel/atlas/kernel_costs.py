"""What a run spent in kernels: a reel has no frames of C++, so what an operator cost stands at the kernel that runs it.

Operators that the same kernel runs are added up, and so are those whose kernels one file holds; as everywhere, a call
below another of the same kernel, or file, is not counted again in `total_ns`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa

from torchreel.analyze.connection import opened
from torchreel.analyze.source.backward_calls import mark_backward_calls, processes_of
from torchreel.analyze.source.call_tree import plain, rows_of, within_own_group
from torchreel.analyze.source.stack_costs import CALLS, SUMS
from torchreel.atlas.model import Costs
from torchreel.reel import Reel

if TYPE_CHECKING:
    import duckdb

Group = TypeVar("Group", bound=Hashable)
Place = tuple[int, int]
"""The id of a file, and a line of it."""
OverloadName = tuple[str, str]
"""An operator's name, and the overload's."""


def kernel_costs(reel: Reel, kernels: Mapping[OverloadName, Place]) -> tuple[dict[Place, Costs], dict[int, Costs]]:
    """What the kernels cost that run these overloads, by where they are defined, and by file."""
    with opened(reel, ("ops",)) as connection:
        mark_backward_calls(connection)
        by_file = {overload: file for overload, (file, _) in kernels.items()}
        return _of_groups(connection, kernels), _of_groups(connection, by_file)


_TREE = """
    SELECT o.id, o.parent, m.member
    FROM ops AS o
    LEFT JOIN members AS m ON o.kind = 'op' AND m.name = o.name AND m.overload = coalesce(o.overload, '')
    WHERE o.process = {process} ORDER BY o.id"""
_SUMS = f"""
    SELECT m.member, {SUMS}, coalesce(sum(o.self_ns) FILTER (WHERE b.id IS NOT NULL), 0)::BIGINT AS backward_ns,
        coalesce(sum(o.dur_ns) FILTER (WHERE n.id IS NULL), 0)::BIGINT AS total_ns
    FROM {CALLS} JOIN members AS m ON m.name = o.name AND m.overload = coalesce(o.overload, '')
        LEFT JOIN nested AS n ON n.process = o.process AND n.id = o.id
    WHERE o.kind = 'op' GROUP BY m.member"""
_COSTS = f"""
    SELECT member, calls, self_ns, self_ns - backward_ns, backward_ns, total_ns, alloc_bytes, flops FROM ({_SUMS})"""

_MEMBERS = pa.schema([("name", pa.string()), ("overload", pa.string()), ("member", pa.int64())])
_NESTED = pa.schema([("process", pa.int32()), ("id", pa.int64())])


def _of_groups(connection: duckdb.DuckDBPyConnection, groups: Mapping[OverloadName, Group]) -> dict[Group, Costs]:
    numbers = {group: number for number, group in enumerate(dict.fromkeys(groups.values()))}
    rows = [
        {"name": name, "overload": overload, "member": numbers[group]} for (name, overload), group in groups.items()
    ]
    connection.register("members", pa.Table.from_pylist(rows, schema=_MEMBERS))
    nested = [_NESTED.empty_table(), *(_nested(connection, process) for process in processes_of(connection))]
    connection.register("nested", pa.concat_tables(nested))
    found = {member: Costs(*costs) for member, *costs in connection.sql(_COSTS).fetchall()}
    return {group: found.get(number, Costs()) for group, number in numbers.items()}


def _nested(connection: duckdb.DuckDBPyConnection, process: int) -> pa.Table:
    found = connection.sql(_TREE.format(process=process)).fetchnumpy()
    ids, parents, member = (plain(values, -1) for values in found.values())
    nested = np.unique(ids[within_own_group(rows_of(ids, parents), member)])
    return pa.table([np.full(len(nested), process, np.int32), nested], schema=_NESTED)
