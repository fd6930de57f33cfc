"""What a run spent on each operator: by overload, by name, by the shapes of its inputs, line by line, and backward.

Operators are calls of kind op whose name is one: `aten::add`, `mylib::norm`, and not `autograd::engine::...: ...`. What
the columns of their costs mean:

- `self_ns` is the own time of its calls; `backward_ns` the part of it in calls that stand below a call of kind backward
  (mm runs forward and backward), `forward_ns` the rest.
- `total_ns` is time from their beginning to their end; a call below another of the same operator is not counted again.
- `backward` of an operator are the calls of kind backward whose forward call is one of its own (`AddmmBackward0` for
  `aten::addmm`): `calls` counts these, the rest is theirs and that of all calls below them. A call below two of them is
  of the inner one, so the backwards of all operators add up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from torchreel.analyze.connection import opened
from torchreel.analyze.source.backward_calls import mark_backward_calls, processes_of
from torchreel.analyze.source.call_tree import inherited, plain, rows_of, within_own_group
from torchreel.analyze.source.placed_stacks import place_stacks
from torchreel.analyze.source.stack_costs import CALLS, SUMS
from torchreel.atlas.model import Costs
from torchreel.reel import Reel

if TYPE_CHECKING:
    import duckdb
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

MOST_SHAPES = 10


@dataclass
class Ran:
    """What one operator cost, all overloads together."""

    costs: Costs
    backward: Costs = field(default_factory=Costs)
    overloads: dict[str, Costs] = field(default_factory=dict)
    lines: list[tuple[str | None, int | None, Costs]] = field(default_factory=list)
    """Path, line, and what the calls cost that have it as their innermost frame: the costliest first."""
    shapes: list[tuple[str, Costs]] = field(default_factory=list)
    """Sizes of the inputs, a JSON list with an item for each, and what the calls with them cost: the costliest ten."""


def operator_costs(reel: Reel) -> dict[str, Ran]:
    """The operators that the run called, by name."""
    with opened(reel, ("ops", "stacks", "frames", "inputs")) as connection:
        mark_backward_calls(connection)
        place_stacks(connection)
        _prepare(connection)
        found = {name: Ran(costs) for name, costs in _costs(connection, _BY_NAME)}
        for name, overload, costs in _costs(connection, _BY_OVERLOAD):
            found[name].overloads[overload] = costs
        for name, costs in _costs(connection, _BACKWARD):
            found[name].backward = costs
        for name, path, line, costs in _costs(connection, _BY_LINE):
            found[name].lines.append((path, line, costs))
        for name, shapes, costs in _costs(connection, _BY_SHAPES):
            found[name].shapes.append((shapes, costs))
    return found


# Calls of the same operator with the same stack and inputs, as one: what all tables below are summed up from.
_SPENT = f"""
    CREATE TEMP TABLE spent AS
    SELECT p.name, p.overload, o.process, o.stack, o.inputs, b.id IS NOT NULL AS backward, n.id IS NOT NULL AS nested,
        coalesce(n.of_overload, false) AS of_overload, {SUMS}, coalesce(sum(o.dur_ns), 0)::BIGINT AS dur_ns
    FROM {CALLS} JOIN operators AS p ON p.name = o.name AND p.overload = coalesce(o.overload, '')
        LEFT JOIN nested AS n ON n.process = o.process AND n.id = o.id
    WHERE o.kind = 'op' GROUP BY ALL"""
# As the fields of Costs.
_MEASURES = """
    sum(calls)::BIGINT AS calls, sum(self_ns)::BIGINT AS self_ns,
    coalesce(sum(self_ns) FILTER (WHERE NOT backward), 0)::BIGINT AS forward_ns,
    coalesce(sum(self_ns) FILTER (WHERE backward), 0)::BIGINT AS backward_ns,
    coalesce(sum(dur_ns) FILTER (WHERE NOT nested), 0)::BIGINT AS total_ns,
    sum(alloc_bytes)::BIGINT AS alloc_bytes, sum(flops)::BIGINT AS flops"""

_BY_NAME = f"SELECT name, {_MEASURES} FROM spent GROUP BY name ORDER BY name"
_BY_OVERLOAD = f"""
    SELECT name, overload, {_MEASURES.replace("NOT nested", "NOT of_overload")}
    FROM spent GROUP BY name, overload ORDER BY name, overload"""
_BY_LINE = f"""
    WITH innermost AS (SELECT process, stack, arg_min(place, position) AS place FROM placed_stacks GROUP BY ALL)
    SELECT name, file, line, {_MEASURES}
    FROM spent JOIN innermost USING (process, stack) JOIN places USING (place) GROUP BY name, file, line
    ORDER BY name, total_ns DESC, self_ns DESC, file, line"""
_BY_SHAPES = f"""
    FROM (
        SELECT name, dims, {_MEASURES}
        FROM spent JOIN inputs ON inputs.process = spent.process AND inputs.id = spent.inputs
        WHERE dims IS NOT NULL GROUP BY name, dims
    )
    QUALIFY row_number() OVER (PARTITION BY name ORDER BY total_ns DESC, self_ns DESC, dims) <= {MOST_SHAPES}
    ORDER BY name, total_ns DESC, self_ns DESC, dims"""
# Of the calls of backward only those of kind backward are counted as calls.
_BACKWARD = f"""
    WITH sums AS (
        SELECT g.operator, {SUMS.replace("count(*)", "count(*) FILTER (WHERE o.kind = 'backward')")}
        FROM ops AS o JOIN gradients AS g ON g.process = o.process AND g.id = o.id GROUP BY ALL
    )
    SELECT DISTINCT name, calls, self_ns, 0, self_ns, self_ns, alloc_bytes, flops
    FROM sums JOIN operators USING (operator) ORDER BY name"""

_OPERATORS = r"""
    CREATE TEMP TABLE operators AS
    SELECT name, overload, dense_rank() OVER (ORDER BY name) AS operator,
        row_number() OVER (ORDER BY name, overload) AS code
    FROM (
        SELECT DISTINCT name, coalesce(overload, '') AS overload FROM ops
        WHERE kind = 'op' AND regexp_full_match(name, '[A-Za-z_]\w*::[A-Za-z_]\w*')
    )"""
# In the order of ids, in which a call comes before those that it makes.
_TREE = """
    SELECT o.id, o.parent, CASE WHEN o.kind = 'backward' THEN o.fwd END AS forward, p.operator, p.code
    FROM ops AS o LEFT JOIN operators AS p
        ON o.kind = 'op' AND p.name = o.name AND p.overload = coalesce(o.overload, '')
    WHERE o.process = {process} ORDER BY o.id"""

_NESTED = pa.schema([("process", pa.int32()), ("id", pa.int64()), ("of_overload", pa.bool_())])
_GRADIENTS = pa.schema([("process", pa.int32()), ("id", pa.int64()), ("operator", pa.int64())])


def _prepare(connection: duckdb.DuckDBPyConnection) -> None:
    """Make four tables.

    - `operators`: name, overload, operator (a number of the name) and code (of both).
    - `nested`: the calls below one of the same operator, and whether it is of the same overload.
    - `gradients`: the calls that compute gradients of an operator, and which.
    - `spent`: what the calls of operators cost.
    """
    connection.execute(_OPERATORS)
    nested, gradients = [_NESTED.empty_table()], [_GRADIENTS.empty_table()]
    for process in processes_of(connection):
        found = connection.sql(_TREE.format(process=process)).fetchnumpy()
        ids, parents, forward, operator, code = (plain(values, -1) for values in found.values())
        above = rows_of(ids, parents)
        within = within_own_group(above, operator)
        nested.append(_rows(_NESTED, process, ids, within_own_group(above, code), within))
        owner = inherited(above, _gradient_of(forward, rows_of(ids, forward), operator))
        gradients.append(_rows(_GRADIENTS, process, ids, owner, owner > 0))
    connection.register("nested", pa.concat_tables(nested))
    connection.register("gradients", pa.concat_tables(gradients))
    connection.execute(_SPENT)


def _gradient_of(forward: Ints, at: Ints, operator: Ints) -> Ints:
    """The operator of each backward call, at whose row its forward call is; -1 for other calls.

    One whose forward call is no operator has 0, which none is: it is not of the backward call around it either.
    """
    return np.where(forward < 0, -1, np.where(at < 0, 0, np.maximum(operator[at], 0)))


def _rows(schema: pa.Schema, process: int, ids: Ints, values: Any, where: NDArray[np.bool_]) -> pa.Table:
    """Some calls of a process, each id once, with a value for each."""
    rows = np.flatnonzero(where)
    kept, first = np.unique(ids[rows], return_index=True)
    return pa.table([np.full(len(kept), process, np.int32), kept, values[rows[first]]], schema=schema)


def _costs(connection: duckdb.DuckDBPyConnection, statement: str) -> Iterator[Any]:
    """The rows of a statement, with its last seven columns as Costs."""
    for row in connection.sql(statement).fetchall():
        yield *row[:-7], Costs(*row[-7:])
