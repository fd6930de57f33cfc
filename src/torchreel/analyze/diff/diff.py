"""Diff: what changed from reel A to reel B, by op, shapes, module or line.

Both are compared by the step if both have steps, else as a whole: programs that ran for another number of steps can be
compared, too. First and last steps, which begin and end with the recording, are left out if there are others. All
numbers are averages over the steps that are left.

The spread of a number is its standard deviation between the steps of a reel, the larger of the two. A change within the
spread may be noise. The changes of all rows add up to the change of self time.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from torchreel.analyze.connection import opened
from torchreel.analyze.summary import summary
from torchreel.analyze.time.averages import averages
from torchreel.analyze.time.phases import phases, steps_of
from torchreel.errors import OptionError
from torchreel.reel import Reel

BY = ("name", "inputs", "module", "line")


@dataclass(frozen=True)
class Change:
    """One number in both reels; the spread is 0 where there are no steps to see one between."""

    a: float
    b: float
    spread: float = 0.0

    @property
    def change(self) -> float:
        return self.b - self.a

    @property
    def percent(self) -> float | None:
        """Of A; None if A is 0."""
        return 100.0 * self.change / self.a if self.a else None

    @property
    def within_spread(self) -> bool:
        return abs(self.change) <= self.spread

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "change": self.change, "percent": self.percent}


@dataclass(frozen=True)
class Diff:
    """What changed, as a whole and row by row."""

    a: str
    b: str
    per: str  # step, or run
    a_steps: int  # how many were compared
    b_steps: int
    wall_ns: Change
    self_ns: Change  # own time of all calls that are counted
    ops: Change
    peak_bytes: Change | None  # None unless both recorded memory
    rows: pa.Table

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as `diff --format json` prints them."""
        head = {
            name: value.as_dict() if isinstance(value, Change) else value
            for name, value in vars(self).items()
            if name != "rows"
        }
        return {**head, "rows": self.rows.to_pylist()}


@dataclass(frozen=True)
class _Side:
    """One of the two reels: which steps are compared, and its calls by group and step."""

    reel: Reel
    steps: tuple[dict[str, Any], ...]  # rows of phases(); empty: the whole run

    @property
    def units(self) -> int:
        return max(len(self.steps), 1)


def diff(a: Reel, b: Reel, by: str = "name") -> Diff:
    """Compare two reels by name, inputs (of an op of a name), module or line.

    The columns of `rows`: the group; for each reel calls, self_ns and alloc_bytes by the step (a_calls, b_calls ...);
    change_ns, spread_ns, and state: new, gone or both. The greatest change comes first.
    """
    if by not in BY:
        raise OptionError(f"Reels cannot be compared by {by!r}: give one of {', '.join(BY)}.")
    first, second = _sides(a, b)
    keys = ("name", "inputs") if by == "inputs" else (by,)
    groups_a, groups_b = (_groups(side, keys) for side in (first, second))
    summary_a, summary_b = summary(a), summary(b)
    peaks = [max((peak.bytes for peak in head.peak_memory), default=None) for head in (summary_a, summary_b)]
    return Diff(
        a=str(a.path),
        b=str(b.path),
        per="step" if first.steps else "run",
        a_steps=len(first.steps),
        b_steps=len(second.steps),
        wall_ns=_change(_walls(first, summary_a.wall_ns), _walls(second, summary_b.wall_ns)),
        self_ns=_change(*(_summed(groups, _SELF, side) for groups, side in ((groups_a, first), (groups_b, second)))),
        ops=_change(_op_counts(first), _op_counts(second)),
        peak_bytes=Change(float(peaks[0]), float(peaks[1])) if None not in peaks else None,  # type: ignore[arg-type]
        rows=_rows(keys, groups_a, groups_b, first.units, second.units),
    )


def module_changes(a: Reel, b: Reel) -> pa.Table:
    """The rows of diff() as a tree: for each module with all that is in it, and for each op by name in its module.

    Columns as in diff(), by module and name; the name of a module's own row is empty.
    """
    first, second = _sides(a, b)
    keys = ("module", "name")
    groups_a, groups_b = (_with_holders(_groups(side, keys), side.units) for side in (first, second))
    return _rows(keys, groups_a, groups_b, first.units, second.units)


def _with_holders(groups: dict[tuple[Any, ...], Any], units: int) -> dict[tuple[Any, ...], Any]:
    """Groups by module and name, and for each module the sum of all groups in it and in its submodules."""
    found = dict(groups)
    for (module, _), values in groups.items():
        parts = [module] if module.startswith("(") else module.split(".")
        for end in range(1, len(parts) + 1):
            holder = (".".join(parts[:end]), "")
            found[holder] = found.get(holder, np.zeros((_MEASURES, units))) + values
    return found


def compared_steps(a: Reel, b: Reel) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows of phases() that diff() compares, of each reel; none if they are compared as a whole."""
    first, second = _sides(a, b)
    return list(first.steps), list(second.steps)


_MEASURES = 3
_CALLS, _SELF, _BYTES = range(_MEASURES)


def _sides(a: Reel, b: Reel) -> tuple[_Side, _Side]:
    steps = [[row for row in steps_of(phases(reel)) if row["step"] is not None] for reel in (a, b)]
    per_step = all(steps)
    return _Side(a, tuple(steps[0]) if per_step else ()), _Side(b, tuple(steps[1]) if per_step else ())


def _rows(
    keys: tuple[str, ...], a: dict[tuple[Any, ...], Any], b: dict[tuple[Any, ...], Any], a_units: int, b_units: int
) -> pa.Table:
    """The groups of both, the greatest change first."""
    empty = np.zeros((_MEASURES, 1))
    rows = []
    for key in dict.fromkeys((*a, *b)):
        row = _row(keys, key, a.get(key, empty), b.get(key, empty), a_units, b_units)
        rows.append({**row, "state": "both" if key in a and key in b else "new" if key in b else "gone"})
    rows.sort(key=lambda row: (-abs(row["change_ns"]), tuple(str(row[name]) for name in keys)))
    return _table(keys, rows)


def _groups(side: _Side, keys: tuple[str, ...]) -> dict[tuple[Any, ...], Any]:
    """For each group an array of calls, own time and bytes, by step."""
    by = (*keys, "step") if side.steps else keys
    table = averages(side.reel, by)
    position = {row["step"]: index for index, row in enumerate(side.steps)}
    found: dict[tuple[Any, ...], Any] = {}
    for row in table.select([*by, "calls", "self_ns", "self_alloc_bytes"]).to_pylist():
        index = position.get(row["step"]) if side.steps else 0
        if index is None:
            continue
        key = tuple(row[name] for name in keys)
        values = found.setdefault(key, np.zeros((_MEASURES, side.units)))
        values[:, index] += (row["calls"], row["self_ns"], row["self_alloc_bytes"] or 0)
    return found


def _row(keys: tuple[str, ...], key: tuple[Any, ...], a: Any, b: Any, a_units: int, b_units: int) -> dict[str, Any]:
    sums = {"a": a.sum(axis=1) / a_units, "b": b.sum(axis=1) / b_units}
    measures = {
        f"{side}_{name}": float(sums[side][number])
        for name, number in (("calls", _CALLS), ("self_ns", _SELF), ("alloc_bytes", _BYTES))
        for side in ("a", "b")
    }
    spread = max(float(values[_SELF].std()) for values in (a, b))
    change = measures["b_self_ns"] - measures["a_self_ns"]
    return {**dict(zip(keys, key, strict=True)), **measures, "change_ns": change, "spread_ns": spread}


def _change(a: Any, b: Any) -> Change:
    """Of two arrays with a value per step."""
    spread = max(float(np.std(values)) for values in (a, b))
    return Change(float(np.mean(a)), float(np.mean(b)), spread)


def _walls(side: _Side, whole: int) -> Any:
    return np.array([row["end_ns"] - row["start_ns"] for row in side.steps] or [whole], np.float64)


def _summed(groups: dict[tuple[Any, ...], Any], measure: int, side: _Side) -> Any:
    total = np.zeros(side.units)
    for values in groups.values():
        total += values[measure]
    return total


def _op_counts(side: _Side) -> Any:
    """How many ops ran, those within others too."""
    with opened(side.reel, ("ops",)) as connection:
        found = connection.sql(
            "SELECT step, count(*) FROM ops WHERE kind NOT IN ('module', 'python', 'range') GROUP BY step"
        ).fetchall()
    if not side.steps:
        return np.array([sum(count for _, count in found)], np.float64)
    counts = dict(found)
    return np.array([counts.get(row["step"], 0) for row in side.steps], np.float64)


def _table(keys: tuple[str, ...], rows: list[dict[str, Any]]) -> pa.Table:
    numbers = ["a_calls", "b_calls", "a_self_ns", "b_self_ns", "a_alloc_bytes", "b_alloc_bytes"]
    schema = pa.schema(
        [
            *((key, pa.string()) for key in keys),
            *((name, pa.float64()) for name in (*numbers, "change_ns", "spread_ns")),
            ("state", pa.string()),
        ]
    )
    assert all(math.isfinite(row["change_ns"]) for row in rows)
    return pa.Table.from_pylist(rows, schema=schema)
