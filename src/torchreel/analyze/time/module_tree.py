"""The tree of modules: what each layer costs itself, and with the layers in it.

What the columns mean, for a module:

- `self_ns` is the own time of all calls made in it and in none of its submodules, forward and backward: what
  `averages` by module says. `total_ns` is that with the submodules', so that totals add up: the total of a root is the
  own time of all calls in it, and the totals of all roots are the own time of all calls, to the nanosecond.
- `self_backward_ns` and `backward_ns` are the parts of these in calls of kind backward and all that these called.
- `calls` counts calls of the module where these were recorded, else of the ops in it.
- `flops` and `alloc_bytes` are with the submodules'. `alloc_bytes` counts what calls allocated and did not free
  themselves; `flops` is null where no formula is known.

Modules of several processes are one if their paths are. Calls in no module have a row of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from torchreel.analyze.connection import Range, opened
from torchreel.reel import Reel

if TYPE_CHECKING:
    import duckdb
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

NO_MODULE = "(no module)"

_SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("class", pa.string()),
        ("parent", pa.string()),  # the path of the module that holds it
        ("calls", pa.int64()),
        ("self_ns", pa.int64()),
        ("total_ns", pa.int64()),
        ("self_backward_ns", pa.int64()),
        ("backward_ns", pa.int64()),
        ("flops", pa.int64()),
        ("alloc_bytes", pa.int64()),
    ]
)
_OWN = ("ops", "module_calls", "self_ns", "self_backward_ns", "flops", "formulas", "alloc_bytes")


def module_tree(reel: Reel, within: Range | None = None) -> pa.Table:
    """A row per module, holders before what they hold; of calls that began in a range of time, if one is given."""
    with opened(reel, ("ops", "modules")) as connection:
        modules = connection.sql(
            'SELECT process, id, path, "class", parent FROM modules ORDER BY process, id'
        ).fetchall()
        sums = _sums(connection, within)
    texts = {(process, number): path or "" for process, number, path, _, _ in modules}
    rows: dict[str, dict[str, Any]] = {}
    for process, number, path, class_name, parent in modules:
        row = rows.setdefault(path or "", {"class": class_name, "parent": texts.get((process, parent)), "own": None})
        _add(row, sums.pop((process, number), None))
    if sums:
        row = rows.setdefault(NO_MODULE, {"class": None, "parent": None, "own": None})
        for own in sums.values():
            _add(row, own)
    return pa.Table.from_pylist(_totals(rows), schema=_SCHEMA)


def _add(row: dict[str, Any], own: Ints | None) -> None:
    if own is not None:
        row["own"] = own if row["own"] is None else row["own"] + own


def _totals(rows: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows in the order of the tree, with what is below them added."""
    children: dict[str | None, list[str]] = {}
    for path, row in rows.items():
        parent = row["parent"] if row["parent"] in rows and row["parent"] != path else None
        children.setdefault(parent, []).append(path)
    order: dict[str, str | None] = {}
    # The roots, and then whatever no root leads to: a damaged table may go round in circles.
    for root in (*children.get(None, []), *rows):
        left: list[tuple[str, str | None]] = [(root, None)]
        while left:
            path, parent = left.pop()
            if path not in order:
                order[path] = parent
                left += [(child, path) for child in reversed(children.get(path, []))]
    nothing = np.zeros(len(_OWN), np.int64)
    own = {path: nothing if rows[path]["own"] is None else rows[path]["own"] for path in order}
    total = {path: values.copy() for path, values in own.items()}
    for path, parent in reversed(order.items()):
        if parent is not None:
            total[parent] += total[path]
    with_calls = any(values[_OWN.index("module_calls")] for values in own.values())
    return [
        _row(path, parent, rows[path]["class"], own[path], total[path], with_calls) for path, parent in order.items()
    ]


def _row(
    path: str, parent: str | None, class_name: str | None, own: Ints, total: Ints, with_calls: bool
) -> dict[str, Any]:
    mine = dict(zip(_OWN, own.tolist(), strict=True))
    whole = dict(zip(_OWN, total.tolist(), strict=True))
    calls = mine["module_calls"] + (mine["ops"] if path == NO_MODULE or not with_calls else 0)
    return {
        "path": path,
        "class": class_name,
        "parent": parent,
        "calls": calls,
        "self_ns": mine["self_ns"],
        "total_ns": whole["self_ns"],
        "self_backward_ns": mine["self_backward_ns"],
        "backward_ns": whole["self_backward_ns"],
        "flops": whole["flops"] if whole["formulas"] else None,
        "alloc_bytes": whole["alloc_bytes"],
    }


def _sums(connection: duckdb.DuckDBPyConnection, within: Range | None) -> dict[tuple[int, int | None], Ints]:
    """What the calls of each module cost themselves, as the values of _OWN."""
    begin, end = within or (-(1 << 62), 1 << 62)
    found: dict[tuple[int, int | None], Ints] = {}
    for (process,) in connection.sql("SELECT DISTINCT process FROM ops ORDER BY 1").fetchall():
        backward = _backward_calls(connection, process)
        connection.register("flagged", backward)
        rows = connection.sql(f"""
            SELECT o.module, count(*) FILTER (WHERE kind <> 'module' AND kind <> 'python'),
                count(*) FILTER (WHERE kind = 'module'), sum(self_ns)::BIGINT,
                coalesce(sum(self_ns) FILTER (WHERE b.id IS NOT NULL), 0)::BIGINT,
                coalesce(sum(flops), 0)::BIGINT, count(flops),
                coalesce(sum(self_alloc_bytes) FILTER (WHERE self_alloc_bytes > 0), 0)::BIGINT
            FROM ops AS o LEFT JOIN flagged AS b ON b.id = o.id
            WHERE o.process = {process:d} AND o.start_ns >= {begin:d} AND o.start_ns < {end:d}
            GROUP BY o.module""").fetchall()
        connection.unregister("flagged")
        found |= {(process, module): np.array(values, np.int64) for module, *values in rows}
    return found


def _backward_calls(connection: duckdb.DuckDBPyConnection, process: int) -> pa.Table:
    """The ids of calls of kind backward, and of all calls that these made, level by level."""
    rows = connection.sql(
        f"SELECT id, coalesce(parent, -1) AS parent, kind = 'backward' AS yes FROM ops WHERE process = {process:d}"
        " ORDER BY id"
    ).fetchnumpy()
    ids, parents, yes = (np.asarray(rows[name]) for name in ("id", "parent", "yes"))
    inside = yes.astype(np.bool_)
    at = np.minimum(ids.searchsorted(parents), max(len(ids) - 1, 0))
    has_parent = np.flatnonzero((parents >= 0) & (ids[at] == parents)) if len(ids) else np.zeros(0, np.int64)
    while True:
        reached = has_parent[inside[at[has_parent]] & ~inside[has_parent]]
        if not len(reached):
            return pa.table({"id": pa.array(ids[inside], pa.int64())})
        inside[reached] = True
