"""The calls of one process as arrays, and which call is around which, for all of them at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchreel.reel import Reel
from torchreel.reel.columns import NOTHING, Ints, Mask, ints, rows_of, texts

_COLUMNS = ["id", "parent", "thread", "name", "kind", "start_ns", "dur_ns", "seq", "fwd", "module", "stack"]
# Every round doubles the distance climbed: more than the deepest stack of calls there can be.
_ROUNDS = 32


@dataclass(frozen=True)
class Calls:
    """One item per call, sorted by id; `parent` is a place in these arrays."""

    id: Ints
    parent: Ints
    seq: Ints  # autograd's number of a call that a graph may remember, and of a backward call
    fwd: Ints  # for a backward call, the place of its forward call
    thread: Ints
    start: Ints
    end: Ints
    name: Ints
    names: list[str]
    kind: Ints
    kinds: list[str]
    module: Ints
    stack: Ints

    def __len__(self) -> int:
        return len(self.id)

    def named(self, *prefixes: str) -> Mask:
        """Calls whose name begins with one of these."""
        chosen = np.array([*(name.startswith(prefixes) for name in self.names), False], bool)
        return chosen[self.name]

    def of_kind(self, *kinds: str) -> Mask:
        chosen = np.array([*(kind in kinds for kind in self.kinds), False], bool)
        return chosen[self.kind]

    def nearest(self, chosen: Mask) -> Ints:
        """For each call the innermost chosen one among itself and the calls around it, or NOTHING."""
        found = np.where(chosen, np.arange(len(self)), NOTHING)
        up = self.parent.copy()
        for _ in range(_ROUNDS):
            open_rows = np.flatnonzero((found == NOTHING) & (up != NOTHING))
            if not len(open_rows):
                break
            found[open_rows] = found[up[open_rows]]
            up = _twice(up)
        return found

    def outermost(self, chosen: Mask) -> Ints:
        """For each call the outermost chosen one among itself and the calls around it, or NOTHING."""
        found = np.where(chosen, np.arange(len(self)), NOTHING)
        up = self.parent.copy()
        for _ in range(_ROUNDS):
            rows = np.flatnonzero(up != NOTHING)
            if not len(rows):
                break
            above = found[up[rows]]
            found[rows] = np.where(above != NOTHING, above, found[rows])
            up = _twice(up)
        return found


def _twice(up: Ints) -> Ints:
    return np.where(up == NOTHING, NOTHING, up[up])


def calls_of(reel: Reel, process: int) -> Calls:
    """Read the calls of one process."""
    import pyarrow.compute as pc  # slow to import, and few questions need it

    table = reel.table("ops", _COLUMNS)
    table = table.filter(pc.equal(table["process"], process))
    order = np.argsort(ints(table, "id"), kind="stable")
    table = table.take(order) if len(order) and (np.diff(order) < 0).any() else table
    id = ints(table, "id")
    name, names = texts(table, "name")
    kind, kinds = texts(table, "kind")
    start = ints(table, "start_ns")
    return Calls(
        id=id,
        parent=_parents(id, ints(table, "parent")),
        seq=ints(table, "seq"),
        fwd=rows_of(id, ints(table, "fwd")),
        thread=ints(table, "thread"),
        start=start,
        end=start + ints(table, "dur_ns", 0),
        name=name,
        names=names,
        kind=kind,
        kinds=kinds,
        module=ints(table, "module"),
        stack=ints(table, "stack"),
    )


def _parents(ids: Ints, wanted: Ints) -> Ints:
    """Places of the calls around; one that was called later would be a damaged reel, and a circle."""
    rows = rows_of(ids, wanted)
    return np.where(rows < np.arange(len(ids)), rows, NOTHING)
