"""The questions whose answers an exported page holds: one row per path, with the queries that its screens ask.

A page without a server answers these and no others, besides what it finds in the calls themselves (tiles, calls,
areas, searches). A screen that asks something new needs a row here; tests/web/html/test_html.py finds what is missing.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable

from torchreel.analyze.source.frames import USER, frame_of
from torchreel.web.viewed_reel import ViewedReel

Queries = Iterable[dict[str, str]]

_MEMORY_BY = ("stack", "module", "op", "category", "blocks")
_AVERAGES_BY = ("name", "name,inputs", "module", "line", "name,line", "thread", "step", "kind", "process")
_DIFF_BY = ("name", "inputs", "module", "line")
_MOST_FILES = 200


def _every(**values: Iterable[object]) -> Callable[[ViewedReel], Queries]:
    """Each combination of the values."""
    names = tuple(values)
    rows = [dict(zip(names, map(str, row), strict=True)) for row in itertools.product(*values.values())]
    return lambda viewed: rows


def _devices(viewed: ViewedReel) -> Iterable[str]:
    return map(str, range(max(len(viewed.devices), 1)))


def _memory(viewed: ViewedReel) -> Queries:
    """At the peak, by time and by events; the total is what the segments' screen and the page's beginning ask for."""
    bands = [{"device": device, "by": by, "x": "time"} for device in _devices(viewed) for by in _MEMORY_BY]
    totals = [{"device": device, "by": "total", "x": "events"} for device in _devices(viewed)]
    return [*bands, *totals, {"by": "total"}]


def _segments(viewed: ViewedReel) -> Queries:
    return [{"device": device, "sort": "address", "first": "0", "rows": "120"} for device in _devices(viewed)]


def _own_files(viewed: ViewedReel) -> Queries:
    """The user's own files, those first of which stacks have the most frames."""
    files = Counter(file for file in viewed.reel.table("frames", ["file"])["file"].to_pylist() if file)
    own = [file for file in files if frame_of(file, 0, "").kind == USER]
    return [{"file": file} for file in sorted(own, key=lambda file: (-files[file], file))[:_MOST_FILES]]


def _compared(viewed: ViewedReel) -> Queries:
    return [] if viewed.other is None else [*({"by": by} for by in _DIFF_BY), {"by": "name", "tree": "1"}]


STORED: dict[str, Callable[[ViewedReel], Queries]] = {
    "about": _every(),
    "lanes": _every(),
    "overview": _every(),
    # The page sorts these itself, where all rows are there.
    "averages": _every(by=_AVERAGES_BY, sort=["self"], limit=[5000]),
    "flame": _every(by=["call", "stack", "module"], of=["time", "flops", "bytes", "calls"]),
    "modules": _every(),
    "memory": _memory,
    "memory/marks": lambda viewed: [{"device": device} for device in _devices(viewed)],
    "segments": _segments,
    "edge": _every(),
    "lines": _every(),
    "tape": _every(),
    "diff": _compared,
}
SOURCES: dict[str, Callable[[ViewedReel], Queries]] = {"source": _own_files}
"""Those that give texts of source files, which --no-source leaves out."""
