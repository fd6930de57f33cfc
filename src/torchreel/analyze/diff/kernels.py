"""Kernels of two reels compared, such that those which were only renamed still meet.

Ops are aligned first: those with the same path (the ops around them), shapes and module, then without the shapes, then
by the op's name alone. Under aligned ops kernels meet by their names; those that are left, by what they do
(families.py); and those that are left then, by their names wherever they are. The rest is new or gone. Kernels that are
alike in all this are one row.

Times are those of the steps that diff() compares: a kernel belongs to the step of its launch, or, if that was not
recorded, to the step in which it began. Each kernel is in one row, so the changes of all rows add up to the change of
the device's time: `a_ns` and `b_ns` are whole nanoseconds over all compared steps, `change_ns` is by the step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from torchreel.analyze.diff.diff import Change, compared_steps
from torchreel.analyze.diff.families import family_of
from torchreel.analyze.gpu.model.run import NO_KERNELS, DeviceRun, device_runs
from torchreel.reel import Reel
from torchreel.reel.columns import NOTHING, Ints, ints

_SCHEMA = pa.schema(
    [
        ("op", pa.string()),  # null for kernels of no op
        ("module", pa.string()),  # null also where kernels of several met
        ("family", pa.string()),
        ("a_kernel", pa.string()),  # the one with most time, if several met several
        ("b_kernel", pa.string()),
        ("match", pa.string()),  # name, family, moved (to another op), new or gone
        ("a_count", pa.int64()),
        ("b_count", pa.int64()),
        ("a_ns", pa.int64()),
        ("b_ns", pa.int64()),
        ("change_ns", pa.float64()),
    ]
)


@dataclass(frozen=True)
class KernelChanges:
    """What changed on the devices. `device_ns` is by the step, or of the run; the rows add up to it."""

    per: str
    a_steps: int
    b_steps: int
    device_ns: Change
    rows: pa.Table
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as `diff --by kernel --format json` prints them."""
        return {
            **vars(self),
            "device_ns": self.device_ns.as_dict(),
            "notes": list(self.notes),
            "rows": self.rows.to_pylist(),
        }


@dataclass(frozen=True)
class _Kind:
    """Kernels that are alike in all that is compared."""

    path: tuple[str, ...]
    shapes: str
    module: str
    name: str
    family: str

    @property
    def op(self) -> str:
        return self.path[-1] if self.path else ""


@dataclass
class _Side:
    """How many kernels of each kind, and their time."""

    counts: Counter[_Kind] = field(default_factory=Counter)
    times: Counter[_Kind] = field(default_factory=Counter)
    left_out: int = 0

    def take(self, kinds: list[_Kind]) -> tuple[str | None, int, int]:
        """Remove kinds: the name with most time, how many kernels, and their time."""
        if not kinds:
            return None, 0, 0
        longest = max(kinds, key=lambda kind: (self.times[kind], kind.name)).name
        taken = [(self.counts.pop(kind), self.times.pop(kind)) for kind in kinds]
        return longest, sum(count for count, _ in taken), sum(time for _, time in taken)


_Key = Callable[[_Kind], Any]
# What kernels must have in common, from the most to the least, and how that is called.
_STAGES: tuple[tuple[str, _Key], ...] = (
    ("name", lambda kind: (kind.path, kind.shapes, kind.module, kind.name)),
    ("family", lambda kind: (kind.path, kind.shapes, kind.module, kind.family)),
    ("name", lambda kind: (kind.path, kind.module, kind.name)),
    ("family", lambda kind: (kind.path, kind.module, kind.family)),
    ("name", lambda kind: (kind.op, kind.name)),
    ("family", lambda kind: (kind.op, kind.family)),
    ("moved", lambda kind: kind.name),
)


def kernel_changes(a: Reel, b: Reel) -> KernelChanges:
    """Compare the kernels of two reels; the greatest change comes first. Reels without kernels have no rows."""
    steps = compared_steps(a, b)
    units = [max(len(rows), 1) for rows in steps]
    sides = [_side(reel, rows) for reel, rows in zip((a, b), steps, strict=True)]
    totals = [sum(side.times.values()) for side in sides]
    rows = list(_matched(sides[0], sides[1], units[0], units[1]))
    rows.sort(key=lambda row: (-abs(row["change_ns"]), row["op"] or "", row["a_kernel"] or "", row["b_kernel"] or ""))
    return KernelChanges(
        per="step" if steps[0] else "run",
        a_steps=len(steps[0]),
        b_steps=len(steps[1]),
        device_ns=Change(totals[0] / units[0], totals[1] / units[1]),
        rows=pa.Table.from_pylist(rows, schema=_SCHEMA),
        notes=tuple(_notes(sides, rows)),
    )


def _notes(sides: list[_Side], rows: list[dict[str, Any]]) -> Iterator[str]:
    for letter, side in zip("AB", sides, strict=True):
        if side.left_out:
            yield f"{side.left_out:,} kernels of {letter} belong to no compared step, and are left out."
    if not rows:
        yield NO_KERNELS


def _matched(a: _Side, b: _Side, a_units: int, b_units: int) -> Iterator[dict[str, Any]]:
    """Rows, from the surest match to none."""
    for match, key in _STAGES:
        groups: dict[Any, tuple[list[_Kind], list[_Kind]]] = {}
        for place, side in enumerate((a, b)):
            for kind in side.counts:
                groups.setdefault(key(kind), ([], []))[place].append(kind)
        for of_a, of_b in groups.values():
            if of_a and of_b:
                yield _row([*of_a, *of_b], match, a.take(of_a), b.take(of_b), a_units, b_units)
    for kind in list(a.counts):
        yield _row([kind], "gone", a.take([kind]), b.take([]), a_units, b_units)
    for kind in list(b.counts):
        yield _row([kind], "new", a.take([]), b.take([kind]), a_units, b_units)


def _row(
    kinds: list[_Kind],
    match: str,
    a: tuple[str | None, int, int],
    b: tuple[str | None, int, int],
    a_units: int,
    b_units: int,
) -> dict[str, Any]:
    ops, modules, families = ({getattr(kind, name) for kind in kinds} for name in ("op", "module", "family"))
    return {
        "op": (ops.pop() or None) if len(ops) == 1 else None,
        "module": (modules.pop() or None) if len(modules) == 1 else None,
        "family": families.pop(),
        "a_kernel": a[0],
        "b_kernel": b[0],
        "match": match,
        "a_count": a[1],
        "b_count": b[1],
        "a_ns": a[2],
        "b_ns": b[2],
        "change_ns": float(Fraction(b[2], b_units) - Fraction(a[2], a_units)),
    }


def _side(reel: Reel, steps: list[dict[str, Any]]) -> _Side:
    side = _Side()
    for run in device_runs(reel):
        chosen = np.arange(len(run.kernels))
        if steps:
            own = [row for row in steps if row["process"] == run.process]
            inside = _within(run, own)
            side.left_out += int((~inside).sum()) if own else 0
            chosen = np.flatnonzero(inside)
        _collect(side, run, chosen)
    return side


def _within(run: DeviceRun, steps: list[dict[str, Any]]) -> Any:
    """Which kernels belong to one of these steps: by their launch, else by the time at which they began."""
    kernels = run.kernels
    launched = np.isin(kernels.step, [row["step"] for row in steps])
    begun = np.zeros(len(kernels), bool)
    for row in steps:
        begun |= (kernels.start >= row["start_ns"]) & (kernels.start < row["end_ns"])
    return np.where(kernels.step >= 0, launched, begun)


def _collect(side: _Side, run: DeviceRun, chosen: Ints) -> None:
    kernels = run.kernels
    called = np.where(kernels.launch[chosen] >= 0, kernels.launch[chosen], kernels.op[chosen])
    op = np.append(run.calls.operator, NOTHING)[called]
    describe = _Describing(run)
    keys, which = np.unique(
        np.stack((op, kernels.module[chosen], kernels.name[chosen], kernels.kind[chosen]), 1),
        axis=0,
        return_inverse=True,
    )
    which = which.reshape(-1)
    times = np.zeros(len(keys), np.int64)
    np.add.at(times, which, kernels.dur[chosen])
    counts = np.bincount(which, minlength=len(keys))
    for (row, module, name, kind), count, time in zip(keys.tolist(), counts.tolist(), times.tolist(), strict=True):
        found = describe(row, module, name, kind)
        side.counts[found] += count
        side.times[found] += time


class _Describing:
    """Says what kernels of one process are, in words that mean the same in another reel."""

    def __init__(self, run: DeviceRun) -> None:
        self._run = run
        self._paths: dict[int, tuple[str, ...]] = {NOTHING: ()}
        inputs, modules = run.rows("inputs", ["id", "dims"]), run.rows("modules", ["id", "path"])
        self._shapes = dict(zip(ints(inputs, "id").tolist(), inputs["dims"].to_pylist(), strict=True))
        self._modules = dict(zip(ints(modules, "id").tolist(), modules["path"].to_pylist(), strict=True))
        self._above = np.append(run.calls.operator, NOTHING)[run.calls.above]

    def __call__(self, op: int, module: int, name: int, kind: int) -> _Kind:
        kernels, calls = self._run.kernels, self._run.calls
        text = kernels.names[name] if name >= 0 else ""
        return _Kind(
            path=self._path(op),
            shapes=(self._shapes.get(int(calls.inputs[op])) or "") if op >= 0 else "",
            module=self._modules.get(module) or "",
            name=text,
            family=family_of(text, kernels.kinds[kind] if kind >= 0 else ""),
        )

    def _path(self, op: int) -> tuple[str, ...]:
        """The names of the ops and ranges around an op, itself the last."""
        rows = []
        while op not in self._paths:
            rows.append(op)
            op = int(self._above[op])
        for row in reversed(rows):
            self._paths[row] = (*self._paths[op], self._run.calls.text(row))
            op = row
        return self._paths[op]
