"""Which call lies in which, by time on each thread. Calls may overlap without one lying in the other."""

from __future__ import annotations

import itertools

import numpy as np

from torchreel.ingest.kineto.columns import Ints, Mask

# Beyond so many levels, which no program has, going row by row takes less time.
_LEVELS = 5000
# Rows that are Python's numbers at a time.
_AT_ONCE = 1 << 16


class Nesting:
    """Rows sorted by their start, a call before those within it. Moments are rows that hold nothing."""

    def __init__(self, thread: Ints, start: Ints, end: Ints, moment: Mask) -> None:
        self._start, self._end, self._moment = start, end, moment
        self.parent, self.depth, level = _parents(thread, start, end, moment)
        order = np.argsort(level, kind="stable")
        deepest = int(level[order[-1]]) if len(order) else -1
        ends = np.searchsorted(level[order], np.arange(deepest + 1), side="right")
        self._levels = np.split(order, ends[:-1]) if len(order) else []

    def nearest(self, own: Mask) -> Ints:
        """For each row the innermost of the chosen calls that holds it, or it itself; -1 for none."""
        found = self._inherited(own)
        return self._open(found, found)

    def around(self, own: Mask) -> Ints:
        """The same for what holds a row, without itself."""
        found = self._inherited(own)
        return self._open(np.where(self.parent < 0, -1, found[np.maximum(self.parent, 0)]), found)

    def _inherited(self, own: Mask) -> Ints:
        """The innermost of the chosen calls among those around the start of each row, whether open or ended."""
        found = np.where(own, np.arange(len(own)), -1)
        if len(self._levels) <= _LEVELS:
            for level in self._levels[1:]:
                without = level[found[level] < 0]
                found[without] = found[self.parent[without]]
            return found
        values = found.tolist()
        for row, (parent, value) in enumerate(zip(self.parent.tolist(), values, strict=True)):
            if value < 0 <= parent:
                values[row] = values[parent]
        return np.array(values, np.int64)

    def _open(self, found: Ints, inherited: Ints) -> Ints:
        """Calls that had ended when the row began give way to those around them."""
        found = found.copy()
        rows = np.flatnonzero(found >= 0)
        while len(rows := rows[self._ended(rows, found[rows])]):
            outer = self.parent[found[rows]]
            found[rows] = np.where(outer < 0, -1, inherited[np.maximum(outer, 0)])
            rows = rows[found[rows] >= 0]
        return found

    def _ended(self, rows: Ints, calls: Ints) -> Mask:
        ended: Mask = (self._end[calls] <= self._start[rows]) & (calls != rows)
        return ended

    def self_times(self) -> Ints:
        """The time of each call without that of its children."""
        result: Ints = np.maximum(self._end - self._start, 0)
        counted = np.flatnonzero((self.parent >= 0) & ~self._moment)
        holder = self.parent[counted]
        within = np.minimum(self._end[counted], self._end[holder]) - self._start[counted]
        np.subtract.at(result, holder, np.maximum(within, 0))
        for row in counted[self._end[counted] > self._end[holder]].tolist():
            self._take_overhang(row, result)
        return result

    def _take_overhang(self, row: int, result: Ints) -> None:
        """What a call lasts beyond its parent is time of the calls around that."""
        start, end, holder = self._start[row], self._end[row], self.parent[row]
        done, still = self._end[holder], self.depth[row] - 1
        while still and done < end:
            holder = self.parent[holder]
            if self._end[holder] <= start:
                continue  # one that had ended already
            still -= 1
            until = min(end, self._end[holder])
            if until > done:
                result[holder] -= until - done
                done = until

    def sums(self, rows: Ints, values: Ints) -> Ints:
        """For each call the values of all these rows that lie in it while it is open."""
        result = np.zeros(len(self.parent), np.int64)
        holder, still = self.parent[rows], self.depth[rows]
        while (inside := still > 0).any():
            rows, values, holder, still = rows[inside], values[inside], holder[inside], still[inside]
            open_now = self._end[holder] > self._start[rows]
            np.add.at(result, holder[open_now], values[open_now])
            holder, still = self.parent[holder], still - open_now
        return result


def _parents(thread: Ints, start: Ints, end: Ints, moment: Mask) -> tuple[Ints, Ints, Ints]:
    """For each row the innermost open call, how many are open, and how many parents it has in all.

    The last two differ where a parent outlives the calls that it began in.
    """
    parents, depths, levels = (np.empty(len(thread), np.int64) for _ in range(3))
    stacks: list[list[tuple[int, int, int]]] = [[] for _ in range(int(thread.max()) + 1 if len(thread) else 0)]
    crossing = [False] * len(stacks)
    for first in range(0, len(thread), _AT_ONCE):
        part = slice(first, first + _AT_ONCE)
        holders: list[int] = []
        opened: list[int] = []
        above: list[int] = []
        given = zip(*(each[part].tolist() for each in (thread, start, end, moment)), strict=True)
        for row, (number, begin, until, holds_nothing) in enumerate(given, first):
            stack = stacks[number]
            if crossing[number]:
                stack[:] = [each for each in stack if each[0] > begin]
                crossing[number] = any(a[0] < b[0] for a, b in itertools.pairwise(stack))
            else:
                while stack and stack[-1][0] <= begin:
                    stack.pop()
            level = 0
            holder = -1
            if stack:
                last, holder, level = stack[-1]
                level += 1
                if until > last and not holds_nothing:
                    crossing[number] = True
            holders.append(holder)
            opened.append(len(stack))
            above.append(level)
            if not holds_nothing:
                stack.append((until, row, level))
        parents[part], depths[part], levels[part] = holders, opened, above
    return parents, depths, levels
