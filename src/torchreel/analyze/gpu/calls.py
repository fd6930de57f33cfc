"""The calls of a reel's processes as arrays, found by their process and id."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from torchreel.reel import Reel
from torchreel.reel.columns import NOTHING, Ints, Mask, ints, texts


@dataclass(frozen=True)
class Calls:
    """The rows of `ops`, sorted by process and id, with the columns that were asked for."""

    process: Ints
    id: Ints
    table: pa.Table

    @classmethod
    def of(cls, reel: Reel, *columns: str) -> Calls:
        """Read these columns of the calls; `process` and `id` come with them."""
        table = reel.table("ops", ["id", *columns])
        process, number = ints(table, "process"), ints(table, "id")
        order = np.lexsort((number, process))
        if np.any(order[1:] < order[:-1]):
            process, number, table = process[order], number[order], table.take(pa.array(order))
        return cls(process, number, table)

    def ints(self, name: str) -> Ints:
        """A column of whole numbers; null is NOTHING."""
        return ints(self.table, name)

    def texts(self, name: str) -> tuple[Ints, list[str]]:
        """A column of texts: numbers, and the text of each."""
        return texts(self.table, name)

    def of_kind(self, *kinds: str) -> Mask:
        """Which calls are of these kinds; needs the column `kind`."""
        codes, words = self.texts("kind")
        return np.array([*(word in kinds for word in words), False], bool)[codes]

    def rows(self, process: Ints, wanted: Ints) -> Ints:
        """The row of each call by its process and id; NOTHING where there is none."""
        found = np.full(len(wanted), NOTHING, np.int64)
        for number in np.unique(process).tolist():
            begin, end = np.searchsorted(self.process, [number, number + 1])
            mine = np.flatnonzero(process == number)
            if begin == end or not len(mine):
                continue
            ids = self.id[begin:end]
            place = np.minimum(np.searchsorted(ids, wanted[mine]), len(ids) - 1)
            found[mine] = np.where(ids[place] == wanted[mine], place + begin, NOTHING)
        found[wanted == NOTHING] = NOTHING
        return found

    def parents(self) -> Ints:
        """The row of the call around each; needs the column `parent`."""
        return self.rows(self.process, self.ints("parent"))


def nearest(rows: Ints, chosen: Mask, parent: Ints) -> Ints:
    """For each row the innermost chosen one among itself and the calls around it, or NOTHING."""
    found = rows.copy()
    for _ in range(len(parent)):  # ends when all have arrived: after as many rounds as calls are nested
        going = np.flatnonzero((found != NOTHING) & ~chosen[found])
        if not len(going):
            break
        found[going] = parent[found[going]]
    return found
