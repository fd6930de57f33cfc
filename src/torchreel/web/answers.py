"""Answers: which question a request of the page asks, and the answer in bytes. See torchreel.web.questions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from torchreel.errors import OptionError
from torchreel.reel import Reel
from torchreel.reel.plain import plain
from torchreel.web import sql
from torchreel.web.atlas_site import AtlasSite
from torchreel.web.query import Query
from torchreel.web.questions.about import about, lanes
from torchreel.web.questions.averages import averages
from torchreel.web.questions.blocks import block, blocks
from torchreel.web.questions.calls import area, call, kernel, like, neighbour, search
from torchreel.web.questions.counters import counters
from torchreel.web.questions.diff import diff
from torchreel.web.questions.edge import edge
from torchreel.web.questions.flame import flame
from torchreel.web.questions.memory import memory, memory_changes
from torchreel.web.questions.memory_marks import memory_marks
from torchreel.web.questions.modules import modules
from torchreel.web.questions.overview import overview
from torchreel.web.questions.segments import segments
from torchreel.web.questions.slowest import slowest
from torchreel.web.questions.source import lines, source, source_of_frame
from torchreel.web.questions.tape import tape
from torchreel.web.tiles import LEVELS, WIDTH, tile
from torchreel.web.viewed_reel import ViewedReel, Viewing


def _simulate(viewed: ViewedReel, query: Query) -> Any:
    # The simulator takes a third of the server's start to import, and few ask for it.
    from torchreel.web.questions.simulate import simulate

    return simulate(viewed, query)


_QUESTIONS: dict[str, Callable[[ViewedReel, Query], Any]] = {
    "about": about,
    "lanes": lanes,
    "overview": overview,
    "averages": averages,
    "area": area,
    "neighbour": neighbour,
    "counters": counters,
    "lines": lines,
    "source": source,
    "search": search,
    "diff": diff,
    "edge": edge,
    "flame": flame,
    "memory": memory,
    "modules": modules,
    "slowest": slowest,
    "memory/changes": memory_changes,
    "memory/marks": memory_marks,
    "blocks": blocks,
    "block": block,
    "segments": segments,
    "simulate": _simulate,
    "tape": tape,
}
# Of one row, by its process and id.
_OF_ONE = {"op": call, "like": like, "kernel": kernel}
_LONGEST_STATEMENT = 10_000
_NO_ATLAS = {"site": None, "page": None, "lines": 0, "why": None}


class Answers:
    """Of one reel, of a second one to compare it with, and of the site of an atlas."""

    def __init__(self, reel: Reel, other: Reel | None = None, atlas: AtlasSite | None = None) -> None:
        self._viewing = Viewing(reel, other)
        self.atlas = atlas

    def answer(self, method: str, path: str, values: dict[str, str], body: bytes) -> Any:
        """What a request asks for: plain values, or bytes. Raises KeyError for a path that is none."""
        if method == "POST":
            if path != "sql":
                raise KeyError(path)
            return self._sql(body)
        if match := re.fullmatch(r"tile/(\d{1,3})/(\d{1,18})", path):
            return self._tile(int(match[1]), int(match[2]), Query(values))
        if match := re.fullmatch(r"(op|like|kernel)/(\d{1,9})/(\d{1,18})", path):
            return _OF_ONE[match[1]](self.viewed, int(match[2]), int(match[3]))
        if match := re.fullmatch(r"source/(?:(\d{1,9})/)?(\d{1,18})", path):
            return source_of_frame(self.viewed, int(match[1] or 0), int(match[2]))
        if path == "revision":
            query = Query(values)
            return self._viewing.revision(query.number("since", 0, 1 << 62, 0) if "since" in query else None)
        if path == "atlas":
            file = Query(values).text("file")
            return {"file": file, **(_NO_ATLAS if self.atlas is None else self.atlas.page_of(file))}
        return _QUESTIONS[path](self.viewed, Query(values))

    @property
    def viewed(self) -> ViewedReel:
        """The reel as it is now."""
        return self._viewing.now()

    @staticmethod
    def encoded(value: Any) -> bytes:
        return json.dumps(plain(value), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")

    def _tile(self, level: int, index: int, query: Query) -> bytes:
        """See torchreel.web.tiles."""
        viewed = self.viewed
        if level >= LEVELS or index * (WIDTH << level) > max(viewed.end, 1):
            raise OptionError(f"There is no tile {index} of level {level}: the reel is {viewed.end} ns long.")
        lanes = list(enumerate(viewed.lanes_without(query.words("hide"))))
        first = query.number("from", 0, 1 << 31, 0)
        # Memory comes with the first lanes.
        curve = viewed.curve if first == 0 else None
        return tile(lanes[first : query.number("to", first, 1 << 31, len(lanes))], curve, level, index)

    def _sql(self, body: bytes) -> Any:
        """Run a statement of the user's."""
        try:
            given = json.loads(body)
            statement = given["sql"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise OptionError('Send {"sql": "select ..."} as JSON.') from None
        if not isinstance(statement, str) or len(statement) > _LONGEST_STATEMENT:
            raise OptionError(f"A statement is a text of at most {_LONGEST_STATEMENT:,} characters.")
        ends = {name: str(given[name]) for name in ("begin", "end") if given.get(name) is not None}
        viewed = self.viewed
        begin, end = viewed.range(Query(ends))
        found = sql.run(viewed.reel, statement, {"begin": begin, "end": end})
        return {"columns": found.columns, "rows": found.rows, "cut": found.cut}
