"""Paths: calls, lines or modules by the way that led to them, as a tree whose sums are exact.

A node is a label below a parent, and parents come before their children. What is added up for a node itself is its
own; the total has all that is below it. A parent's total is never less than that of a child, so that the widest nodes
of a tree are a tree again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

MEASURES = ("time", "flops", "bytes", "calls")
ROOT = -1
_DENSE = 1 << 22
"""Keys below this are told apart by counting them, which is faster than sorting."""


@dataclass
class Paths:
    """A tree of labels by number."""

    parents: list[int] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    _numbers: dict[tuple[int, int], int] = field(default_factory=dict)
    _parts: list[tuple[Ints, Ints]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.parents)

    def add(self, parents: Ints, labels: Ints, values: Ints | None = None) -> Ints:
        """Add items to the tree, with a row of values for each measure; gives the node of each."""
        if not len(parents):
            return np.zeros(0, np.int64)
        width = int(labels.max()) + 1
        keys, inverse = _distinct((parents + 1) * width + labels)
        nodes = np.array([self._number(key // width - 1, key % width) for key in keys.tolist()], np.int64)
        if values is not None:
            sums = np.zeros((len(MEASURES), len(keys)), np.int64)
            for measure, row in enumerate(values):
                np.add.at(sums[measure], inverse, row)
            self._parts.append((nodes, sums))
        return nodes[inverse]

    def _number(self, parent: int, label: int) -> int:
        number = self._numbers.setdefault((parent, label), len(self.parents))
        if number == len(self.parents):
            self.parents.append(parent)
            self.labels.append(label)
        return number

    def summed(self) -> Tree:
        """The tree, when everything is in it."""
        own = np.zeros((len(MEASURES), len(self)), np.int64)
        for nodes, sums in self._parts:
            for measure, row in enumerate(sums):
                np.add.at(own[measure], nodes, row)
        return Tree(np.array(self.parents, np.int64), np.array(self.labels, np.int64), own)


def _distinct(keys: Ints) -> tuple[Ints, Ints]:
    """The distinct keys in ascending order, and for each key which of them it is."""
    most = int(keys.max())
    if most >= _DENSE:
        found, inverse = np.unique(keys, return_inverse=True)
        return found, inverse.ravel()
    place = np.zeros(most + 1, np.int64)
    place[keys] = 1
    found = np.flatnonzero(place)
    place[found] = np.arange(len(found))
    return found, place[keys]


class Tree:
    """Nodes by number, with what is their own and their totals, for each measure."""

    def __init__(self, parents: Ints, labels: Ints, own: Ints) -> None:
        self.parents = parents
        self.labels = labels
        self.own = own
        self.depths = self._depths()
        self.total = own.copy()
        for depth in range(int(self.depths.max(initial=0)), 0, -1):
            nodes = np.flatnonzero(self.depths == depth)
            for row in self.total:
                np.add.at(row, parents[nodes], row[nodes])

    def __len__(self) -> int:
        return len(self.parents)

    def _depths(self) -> Ints:
        depths = np.zeros(len(self.parents), np.int64)
        nodes = np.flatnonzero(self.parents >= 0)
        # Each round places the nodes one level deeper; a node's parent has a smaller number.
        level = np.flatnonzero(self.parents < 0)
        depth = 0
        while len(nodes):
            below = np.isin(self.parents[nodes], level)
            level, nodes = nodes[below], nodes[~below]
            depth += 1
            depths[level] = depth
        return depths

    def whole(self, measure: int) -> int:
        return int(self.own[measure].sum())

    def outermost(self, wanted: Bools) -> Ints:
        """The nodes whose label is wanted, and that lie below no other such node."""
        inside = np.zeros(len(self), np.bool_)
        hits = wanted[self.labels] if len(self) else inside
        for depth in range(1, int(self.depths.max(initial=0)) + 1):
            nodes = np.flatnonzero(self.depths == depth)
            above = self.parents[nodes]
            inside[nodes] = inside[above] | hits[above]
        return np.flatnonzero(hits & ~inside)

    def widest(self, measure: int, most: int) -> dict[str, Any]:
        """The nodes with the greatest totals as columns, the greatest first; parents are positions in them."""
        order = np.lexsort((np.arange(len(self)), -self.total[measure]))
        order = order[self.total[measure][order] > 0]
        kept = order[:most]
        position = np.full(len(self) + 1, ROOT, np.int64)  # the last one is for the root
        position[kept] = np.arange(len(kept))
        return {
            "nodes": {
                "parent": position[self.parents[kept]].tolist(),
                "label": self.labels[kept].tolist(),
                "total": self.total[measure][kept].tolist(),
                "self": self.own[measure][kept].tolist(),
                "ns": self.total[MEASURES.index("time")][kept].tolist(),
                "calls": self.own[MEASURES.index("calls")][kept].tolist(),
            },
            "left_out": len(order) - len(kept),
        }

    def callees(self, wanted: Bools) -> Tree:
        """What the nodes of some labels led to, wherever they are: all as one node, and what is below them."""
        paths = Paths()
        below = np.full(len(self), -2, np.int64)
        tops = self.outermost(wanted)
        below[tops] = paths.add(np.full(len(tops), ROOT), np.zeros(len(tops), np.int64), self.own[:, tops])
        for depth in range(1, int(self.depths.max(initial=0)) + 1):
            nodes = np.flatnonzero((self.depths == depth) & (below == -2))
            nodes = nodes[below[self.parents[nodes]] >= 0]
            below[nodes] = paths.add(below[self.parents[nodes]], self.labels[nodes] + 1, self.own[:, nodes])
        return _shifted(paths.summed())

    def callers(self, wanted: Bools) -> Tree:
        """The way to the nodes of some labels, from the inside out, each with the total of what it led to."""
        paths = Paths()
        tops = self.outermost(wanted)
        values = self.total[:, tops]
        nodes = paths.add(np.full(len(tops), ROOT), np.zeros(len(tops), np.int64), values)
        at = self.parents[tops]
        while len(at):
            going = np.flatnonzero(at >= 0)
            at, nodes, values = at[going], nodes[going], values[:, going]
            # A caller's value is counted in its callee already: what stays there is what nobody else called.
            paths.add(parents=_parents(paths, nodes), labels=_labels(paths, nodes), values=-values)
            nodes = paths.add(nodes, self.labels[at] + 1, values)
            at = self.parents[at]
        return _shifted(paths.summed())


def _parents(paths: Paths, nodes: Ints) -> Ints:
    return np.array([paths.parents[node] for node in nodes.tolist()], np.int64)


def _labels(paths: Paths, nodes: Ints) -> Ints:
    return np.array([paths.labels[node] for node in nodes.tolist()], np.int64)


def _shifted(tree: Tree) -> Tree:
    """Labels that were counted from 1 on, so that 0 could stand for the chosen one, which is -1 now."""
    tree.labels = tree.labels - 1
    return tree


def add_ways(paths: Paths, ways: Sequence[Sequence[int]]) -> Ints:
    """Add ways from the outermost label to the innermost; gives the node at the end of each, ROOT for an empty one."""
    lengths = np.array([len(way) for way in ways], np.int64)
    flat = np.array([label for way in ways for label in way], np.int64)
    first = np.cumsum(lengths) - lengths
    nodes = np.full(len(ways), ROOT, np.int64)
    for depth in range(int(lengths.max(initial=0))):
        rows = np.flatnonzero(lengths > depth)
        nodes[rows] = paths.add(nodes[rows], flat[first[rows] + depth])
    return nodes
