"""The flame graph: what each path costs, by calls, by lines of the Python stack or by modules.

All are sums of what calls cost themselves, for the calls that began in the range, so that the whole is that of the op
table. A call around the range is shown with what of it began in the range. A call's parent is the last call of the lane
above it that began before it, so lanes alone give the tree of calls; stacks and modules are grouped by DuckDB.

`bytes` is what calls allocated and did not free themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from torchreel.analyze.connection import Range, opened
from torchreel.analyze.source.frames import USER, frame_of
from torchreel.errors import OptionError
from torchreel.web.lanes import Lane
from torchreel.web.paths import MEASURES, ROOT, Paths, Tree, add_ways
from torchreel.web.query import Query
from torchreel.web.viewed_reel import ViewedReel

if TYPE_CHECKING:
    import duckdb

    from torchreel.web.paths import Bools, Ints

MOST_NODES = 5_000

Name = tuple[str, str, str | None, int | None]
"""A label's text, its kind (of a call, or frame, own_frame, module_path), and a file and line if it has one."""


@dataclass
class Names:
    """Labels by number."""

    numbers: dict[Name, int] = field(default_factory=dict)

    def number(self, text: str, kind: str, file: str | None = None, line: int | None = None) -> int:
        return self.numbers.setdefault((text, kind, file, line), len(self.numbers))

    def matching(self, matches: Callable[[str], bool]) -> Bools:
        return np.array([matches(text) for text, *_ in self.numbers], np.bool_)


def flame(viewed: ViewedReel, query: Query) -> dict[str, Any]:
    """Paths `by` call, stack or module, as wide as their part `of` time, flops, bytes or calls.

    With `name`, also the sandwich: who led to all that is called so, and what it led to. With `q`, how much of the
    whole is below labels that hold the text.
    """
    by = query.choice("by", tuple(_BY), "call")
    measure = MEASURES.index(query.choice("of", MEASURES, "time"))
    text = query.text("q").lower()
    if len(text) > 200:
        raise OptionError("Give q, a text of at most 200 characters, to search for.")
    tree, names = _BY[by](viewed, query, measure)
    hits = names.matching(lambda name: bool(text) and text in name.lower())
    found = tree.outermost(hits)
    answer = {
        "whole": tree.whole(measure),
        **tree.widest(measure, MOST_NODES),
        "matched": int(tree.total[measure][found].sum()),
        "names": [[*name, bool(hit)] for name, hit in zip(names.numbers, hits.tolist(), strict=True)],
    }
    if "name" in query:
        chosen = query.text("name")
        wanted = names.matching(lambda name: name == chosen)
        answer["callers"] = tree.callers(wanted).widest(measure, MOST_NODES // 2)
        answer["callees"] = tree.callees(wanted).widest(measure, MOST_NODES // 2)
    return answer


def _by_call(viewed: ViewedReel, query: Query, measure: int) -> tuple[Tree, Names]:
    within = viewed.range_if_given(query)
    costs = _costs(viewed, measure, within) if MEASURES[measure] in _COLUMNS else {}
    begin, end = (0, 1 << 62) if within is None else (time - viewed.origin for time in within)
    # Kernels run beside calls: their time is not a part of the calls' time.
    lanes = [lane for lane in viewed.lanes if lane.thread >= 0]
    names = Names()
    # Calls of one class of modules are one box, whichever they are calls of.
    numbers = np.array([names.number(name, kind) for name, kind, _ in viewed.labels], np.int64)
    return tree_of_calls(lanes, numbers, begin, end, measure, costs), names


@dataclass(frozen=True)
class _Costs:
    """What single calls of a process cost, by their ids in ascending order; the others cost nothing."""

    ids: Ints
    values: Ints

    def of(self, ids: Any) -> Ints:
        at = np.minimum(self.ids.searchsorted(ids), len(self.ids) - 1)
        found: Ints = np.where(self.ids[at] == ids, self.values[at], 0)
        return found


_COLUMNS = {"flops": "flops", "bytes": "self_alloc_bytes"}


def _costs(viewed: ViewedReel, measure: int, within: Range | None) -> dict[int, _Costs]:
    column = _COLUMNS[MEASURES[measure]]
    with opened(viewed.reel, ("ops",), within) as connection:
        rows = connection.sql(
            f"SELECT process, id, {column} AS value FROM ops WHERE {column} > 0 ORDER BY process, id"
        ).fetchnumpy()
    processes, ids, values = (np.asarray(rows[name], np.int64) for name in ("process", "id", "value"))
    return {
        int(process): _Costs(ids[processes == process], values[processes == process])
        for process in np.unique(processes)
    }


def tree_of_calls(
    lanes: Sequence[Lane],
    names: Ints,
    begin: int,
    end: int,
    measure: int = 0,
    costs: dict[int, _Costs] | None = None,
) -> Tree:
    """The tree of calls that began in a range, by names: the number of each label's name is given.

    Times count from the reel's beginning.
    """
    paths = Paths()
    for thread in _by_thread(lanes):
        above: _Part | None = None
        for lane, below in zip(thread, [*thread[1:], None], strict=True):
            part = _part(lane, begin, end)
            if part is not None:
                parents = np.full(len(part.at), ROOT, np.int64)
                if above is not None and above.lane.depth == lane.depth - 1:
                    parents = above.nodes_around(part)
                values = np.zeros((len(MEASURES), len(part.at)), np.int64)
                inside = part.starts >= begin
                values[0] = part.own_time(below) * inside
                values[-1] = inside
                if costs and lane.process in costs:
                    values[measure] = costs[lane.process].of(lane.ids[part.at]) * inside
                part.nodes = paths.add(parents, names[lane.labels[part.at]], values)
            above = part
    return paths.summed()


@dataclass
class _Part:
    """The calls of a lane that began in the range, and before them the one that was open when the range began."""

    lane: Lane
    at: Ints
    starts: Ints
    ends: Ints
    nodes: Ints

    def nodes_around(self, below: _Part) -> Ints:
        """The nodes of the calls that were open when those of the lane below began; ROOT where none was."""
        at = self.starts.searchsorted(below.starts, "right") - 1
        # One that took no time may have begun at the very end.
        reach = below.starts + (below.ends > below.starts)
        around = (at >= 0) & (reach <= self.ends[at])
        found: Ints = np.where(around, self.nodes[at], ROOT)
        return found

    def own_time(self, below: Lane | None) -> Ints:
        """What the calls did in none of the calls of the lane below them."""
        times: Ints = self.ends - self.starts
        if below is None or below.depth != self.lane.depth + 1:
            return times
        first, last = (below.starts.searchsorted(moments) for moments in (self.starts, self.ends))
        return np.maximum(times - (below.sums[last] - below.sums[first]), 0)


def _part(lane: Lane, begin: int, end: int) -> _Part | None:
    first, last = (int(each) for each in lane.starts.searchsorted([begin, end]))
    if first > 0 and lane.starts[first - 1] + lane.durations(first - 1) > begin:
        first -= 1
    if last <= first:
        return None
    at = np.arange(first, last)
    starts = lane.starts[first:last]
    return _Part(lane, at, starts, starts + lane.durations(at), at)


def _by_thread(lanes: Iterable[Lane]) -> list[list[Lane]]:
    """The lanes of each thread, the outermost first; asynchronous calls have no place in a stack."""
    threads: dict[tuple[int, int], list[Lane]] = {}
    for lane in lanes:
        if not lane.is_async:
            threads.setdefault((lane.process, lane.thread), []).append(lane)
    return [sorted(thread, key=lambda lane: lane.depth) for thread in threads.values()]


_SUMS = """
    sum(self_ns)::BIGINT AS time, coalesce(sum(flops), 0)::BIGINT AS flops,
    coalesce(sum(self_alloc_bytes) FILTER (WHERE self_alloc_bytes > 0), 0)::BIGINT AS bytes, count(*) AS calls"""


def _by_stack(viewed: ViewedReel, query: Query, measure: int) -> tuple[Tree, Names]:
    names = Names()
    with opened(viewed.reel, ("ops", "stacks", "frames"), viewed.range_if_given(query)) as connection:
        frames = {
            (process, number): _frame(names, file or "", line or 0, function or "")
            for process, number, file, line, function in _rows(
                connection, "process, id, file, line, function", "frames"
            )
        }
        ways = {
            (process, number): [frames[process, frame] for frame in reversed(held or []) if (process, frame) in frames]
            for process, number, held in _rows(connection, "process, id, frames", "stacks")
        }
        return _grouped(connection, "stack", ways, names, names.number("(no stack)", "frame")), names


def _frame(names: Names, file: str, line: int, function: str) -> int:
    frame = frame_of(file, line, function)
    return names.number(frame.text, "own_frame" if frame.kind == USER else "frame", file, line)


def _by_module(viewed: ViewedReel, query: Query, measure: int) -> tuple[Tree, Names]:
    names = Names()
    with opened(viewed.reel, ("ops", "modules"), viewed.range_if_given(query)) as connection:
        modules = {
            (process, number): (parent, names.number(f"{path}: {class_name or ''}", "module_path"))
            for process, number, path, class_name, parent in _rows(
                connection, 'process, id, path, "class", parent', "modules"
            )
        }
        ways = {key: list(reversed(list(_chain(modules, *key)))) for key in modules}
        return _grouped(connection, "module", ways, names, names.number("(no module)", "module_path")), names


def _chain(modules: dict[tuple[int, int], tuple[int | None, int]], process: int, number: int | None) -> Iterator[int]:
    """The labels of a module and of those that hold it."""
    seen = set()
    while number is not None and number not in seen and (process, number) in modules:
        seen.add(number)
        number, label = modules[process, number]
        yield label


def _rows(connection: duckdb.DuckDBPyConnection, columns: str, table: str) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = connection.sql(f"SELECT {columns} FROM {table} ORDER BY process, id").fetchall()
    return rows


def _grouped(
    connection: duckdb.DuckDBPyConnection, key: str, ways: dict[tuple[int, int], list[int]], names: Names, nowhere: int
) -> Tree:
    """The calls by name, below the ways that their stacks or modules stand for."""
    paths = Paths()
    keys = list(ways)
    ends = dict(zip(keys, add_ways(paths, [ways[each] for each in keys]).tolist(), strict=True))
    rows = connection.sql(
        f"SELECT process, {key}, name, kind, {_SUMS} FROM ops GROUP BY ALL ORDER BY 1, 2, 3, 4"
    ).fetchall()
    if not rows:
        return paths.summed()
    lost = int(paths.add(np.array([ROOT]), np.array([nowhere]))[0])
    at = [ends.get((process, number), lost) for process, number, *_ in rows]
    labels = [names.number(name or "", kind or "") for _, _, name, kind, *_ in rows]
    values = np.array([row[4:] for row in rows], np.int64).T
    paths.add(np.array(at, np.int64), np.array(labels, np.int64), values)
    return paths.summed()


_BY: dict[str, Callable[[ViewedReel, Query, int], tuple[Tree, Names]]] = {
    "call": _by_call,
    "stack": _by_stack,
    "module": _by_module,
}
