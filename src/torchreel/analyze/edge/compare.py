"""Two formats of one model, op by op: the same op in the same module, beside each other.

Ops are the same if they are in the same module and one computes what the other does, whatever their formats call them.
Where one of the two reels does not know the modules of its ops, ops of a name are one row. What has no counterpart,
because a compiler folded or fused it, is told apart. Modules have the time of all ops in them: what is fused within one
is compared fairly there. A model that was wrapped in another module to be saved in one of the formats is found in it.
"""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from torchreel.analyze.connection import opened
from torchreel.analyze.edge.names import canonical
from torchreel.analyze.edge.rates import median_ns
from torchreel.analyze.edge.runs import TABLES, place_ops
from torchreel.reel import Reel


@dataclass(frozen=True)
class Side:
    """What one of the two did there, in a run."""

    names: tuple[str, ...]  # as its format calls them
    calls: float
    ns: int


@dataclass(frozen=True)
class Match:
    path: str  # of the module, without the model's own name; "" is the model itself, or not known
    op: str
    left: Side | None
    right: Side | None

    @property
    def ratio(self) -> float | None:
        """How many times the left one's time the right one takes."""
        return None if self.left is None or self.right is None else _ratio(self.left.ns, self.right.ns)


@dataclass(frozen=True)
class ModuleMatch:
    """A module that both know, with what is in it."""

    path: str
    left_ns: int
    right_ns: int

    @property
    def ratio(self) -> float | None:
        return _ratio(self.left_ns, self.right_ns)


def _ratio(left: int, right: int) -> float | None:
    return right / left if left > 0 else None


@dataclass(frozen=True)
class Comparison:
    """The rows of both, those with the greatest time first."""

    by_module: bool  # whether both know the modules of their ops
    rows: list[Match]
    modules: list[ModuleMatch]

    @property
    def matched(self) -> list[Match]:
        return [row for row in self.rows if row.left and row.right]

    @property
    def unmatched(self) -> list[Match]:
        return [row for row in self.rows if not (row.left and row.right)]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as `torchreel edge --compare --format json` prints them."""
        return {
            "by_module": self.by_module,
            "rows": [{**asdict(row), "ratio": row.ratio} for row in self.rows],
            "modules": [{**asdict(module), "ratio": module.ratio} for module in self.modules],
        }


@dataclass
class _Group:
    names: dict[str, None] = field(default_factory=dict)
    calls: int = 0
    times: dict[int, int] = field(default_factory=lambda: defaultdict(int))  # of each run


_Groups = dict[tuple[str, str], _Group]
"""By place and op."""


@dataclass(frozen=True)
class _Op:
    run: int
    path: str | None
    name: str
    calls: int
    ns: int


def edge_compare(left: Reel, right: Reel) -> Comparison:
    """Match the ops of two reels of EdgeProfiler."""
    (left_ops, left_runs), (right_ops, right_runs) = _read(left), _read(right)
    by_module = all(any("." in (op.path or "") for op in ops) for ops in (left_ops, right_ops))
    ours, theirs = _most_alike(_views(left_ops, by_module), _views(right_ops, by_module))
    rows = [
        Match(*place, _side(ours.get(place), left_runs), _side(theirs.get(place), right_runs))
        for place in dict.fromkeys((*ours, *theirs))
    ]
    mine, other = _module_times(ours, left_runs), _module_times(theirs, right_runs)
    modules = [ModuleMatch(path, mine[path], other[path]) for path in mine if path in other]
    return Comparison(
        by_module,
        sorted(rows, key=lambda row: (-max(_times(row)), row.path, row.op)),
        sorted(modules, key=lambda module: (-max(module.left_ns, module.right_ns), module.path)),
    )


def _module_times(groups: _Groups, runs: int) -> dict[str, int]:
    """The time of each module with all that is in it, the model itself left out."""
    times: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for (path, _), group in groups.items():
        parts = path.split(".") if path else []
        for end in range(1, len(parts) + 1):
            for run, ns in group.times.items():
                times[".".join(parts[:end])][run] += ns
    return {path: median_ns(of_runs.values(), runs) for path, of_runs in times.items()}


def _side(group: _Group | None, runs: int) -> Side | None:
    if group is None:
        return None
    return Side(tuple(group.names), group.calls / runs, median_ns(group.times.values(), runs))


def _times(row: Match) -> Iterator[int]:
    return (side.ns for side in (row.left, row.right) if side is not None)


def _read(reel: Reel) -> tuple[list[_Op], int]:
    with opened(reel, TABLES) as connection:
        place_ops(connection, reel, nested=False)
        rows = connection.sql("""
            SELECT s.run, m.path, s.name, count(*), sum(s.ns)::BIGINT
            FROM shown AS s LEFT JOIN modules AS m ON m.process = s.process AND m.id = s.module
            GROUP BY ALL ORDER BY s.run, min(s.start_ns)""").fetchall()
        runs = connection.sql("SELECT count(*) FROM runs").fetchall()[0][0]
    return [_Op(*row) for row in rows], int(runs)


def _views(ops: list[_Op], by_module: bool) -> list[_Groups]:
    """The ops by their places in the model, then in the module that holds all others, then in the next, if it does."""
    if not by_module:
        return [_grouped(ops, lambda _: "")]
    # The model's own name differs: its class in one format, its graph's or its file's in another.
    paths = {op.path: tuple(op.path.split(".")[1:]) for op in ops if op.path}
    around = _common([path for path in paths.values() if path])

    def path(depth: int, op: _Op) -> str:
        parts = paths.get(op.path or "", ())
        return ".".join(parts[depth:] if parts[:depth] == around[:depth] else parts)

    return [_grouped(ops, functools.partial(path, depth)) for depth in range(len(around) + 1)]


def _common(paths: list[tuple[str, ...]]) -> tuple[str, ...]:
    """The names with which all of them begin."""
    names = itertools.takewhile(lambda level: len(set(level)) == 1, zip(*paths, strict=False))
    return tuple(level[0] for level in names)


def _most_alike(left: list[_Groups], right: list[_Groups]) -> tuple[_Groups, _Groups]:
    """Those with the most rows in common; of several the first, which leave out the least."""
    return max(itertools.product(left, right), key=lambda pair: len(pair[0].keys() & pair[1].keys()))


def _grouped(ops: list[_Op], path: Callable[[_Op], str]) -> _Groups:
    groups: _Groups = defaultdict(_Group)
    for op in ops:
        group = groups[path(op), canonical(op.name)]
        group.names[op.name] = None
        group.calls += op.calls
        group.times[op.run] += op.ns
    return groups
