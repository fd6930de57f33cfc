"""Answers: what the page asks for under /api, as plain values. Every number is that of the command line.

Times that come in and go out are nanoseconds since the reel's beginning, unless a row of a table is given as it is.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from typing import Any

from torchreel._version import __version__
from torchreel.analyze import averages, diff, findings, phases, summary, typical_step
from torchreel.analyze.connection import opened
from torchreel.analyze.source.lines import lines, user_lines
from torchreel.errors import OptionError
from torchreel.reel import Reel
from torchreel.reel.plain import plain
from torchreel.web import sql
from torchreel.web.flame import flame
from torchreel.web.looked_at import LookedAt
from torchreel.web.memory import Memories
from torchreel.web.sources import text_of
from torchreel.web.tiles import LEVELS, WIDTH, tile

Query = dict[str, str]

_LONGEST_QUERY = 10_000
_ROWS = 500


class Answers:
    """Of one reel, and of a second one to compare it with."""

    def __init__(self, reel: Reel, other: Reel | None = None) -> None:
        self.reel = reel
        self.other = other
        self.looked_at = LookedAt(reel)
        self.memories = Memories(self.looked_at)
        self._get: dict[str, Callable[[Query], Any]] = {
            "about": self.about,
            "overview": self.overview,
            "averages": self.averages,
            "area": self.area,
            "lines": self.lines,
            "source": self.source,
            "search": self.search,
            "diff": self.diff,
            "flame": self.flame,
            "memory": self.memory,
            "tape": self.tape,
        }

    def answer(self, method: str, path: str, query: Query, body: bytes) -> Any:
        """What a request asks for: plain values, or bytes. Raises KeyError for a path that is none."""
        if method == "POST":
            if path != "sql":
                raise KeyError(path)
            return self.sql(body)
        if match := re.fullmatch(r"tile/(\d{1,3})/(\d{1,18})", path):
            return self.tile(int(match[1]), int(match[2]))
        if match := re.fullmatch(r"op/(\d{1,9})/(\d{1,18})", path):
            return self.op(int(match[1]), int(match[2]))
        return self._get[path](query)

    @staticmethod
    def encoded(value: Any) -> bytes:
        return json.dumps(plain(value), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")

    def about(self, query: Query) -> Any:
        """What the page needs before it draws anything."""
        head = summary(self.reel)
        return {
            "version": __version__,
            "reel": head.reel,
            "origin_ns": self.looked_at.origin,
            "end": self.looked_at.end,
            "tile": WIDTH,
            "summary": head.as_dict(),
            "processes": self.reel.process_rows(),
            "threads": self.looked_at.threads(),
            "lanes": [[lane.process, lane.thread, lane.depth, lane.is_async] for lane in self.looked_at.lanes],
            "labels": list(self.looked_at.labels),
            "steps": self._steps(),
            "marks": self._marks(),
            "compared": None if self.other is None else str(self.other.path),
        }

    def _steps(self) -> list[dict[str, Any]]:
        rows = self.reel.table("steps").to_pylist()
        origin = self.looked_at.origin
        return [
            {
                "process": row["process"],
                "step": row["step"],
                "begin": row["start_ns"] - origin,
                "end": row["end_ns"] - origin,
            }
            for row in rows
        ]

    def _marks(self) -> list[dict[str, Any]]:
        rows = self.reel.table("marks").to_pylist()[:_ROWS]
        return [{"time": row["time_ns"] - self.looked_at.origin, "name": row["name"]} for row in rows]

    def overview(self, query: Query) -> Any:
        """Where the time went, and what to do next."""
        step = typical_step(self.reel)
        origin = self.looked_at.origin
        return {
            "step": None if step is None else step.as_dict(),
            "steps": [
                {**row, "start_ns": row["start_ns"] - origin, "end_ns": row["end_ns"] - origin}
                for row in phases(self.reel).to_pylist()
                if row["step"] is not None and (step is None or row["process"] == step.process)
            ],
            "findings": [finding.as_dict() for finding in findings(self.reel)],
            "ops": averages(self.reel, "name", limit=10).to_pylist(),
            "modules": averages(self.reel, "module", limit=10).to_pylist() if self._has("modules") else [],
            "lines": user_lines(self.reel).slice(0, 8).to_pylist() if self._has("stacks") else [],
            "memory": self._memory_curve(400),
        }

    def _has(self, table: str) -> bool:
        return bool(self.reel.table(table, ["id"]).num_rows)

    def _memory_curve(self, points: int) -> Any:
        """The most memory in each of so many parts of the run, and the peak."""
        curve = self.looked_at.curve
        if curve is None or not len(curve.times):
            return None
        peak = int(curve.totals.argmax())
        edges = [self.looked_at.end * n // points for n in range(points + 1)]
        before = curve.times.searchsorted(edges)
        tops = [
            int(curve.totals[max(int(a) - 1, 0) : max(int(b), int(a), 1)].max()) if b > 0 else 0
            for a, b in itertools.pairwise(before)
        ]
        return {"most": tops, "peak": int(curve.totals[peak]), "peak_at": int(curve.times[peak])}

    def averages(self, query: Query) -> Any:
        """The table of `torchreel report`."""
        by = tuple(filter(None, query.get("by", "name").split(",")))
        kinds = tuple(filter(None, query.get("kind", "").split(","))) or None
        limit = _number(query, "limit", 1, 100_000, _ROWS)
        within = self._range(query) if "begin" in query else None
        table = averages(self.reel, by, sort=query.get("sort", "self"), kinds=kinds, within=within)
        return {"rows": table.slice(0, limit).to_pylist(), "all": table.num_rows}

    def tile(self, level: int, index: int) -> bytes:
        """See torchreel.web.tiles."""
        if level >= LEVELS or index * (WIDTH << level) > max(self.looked_at.end, 1):
            raise OptionError(f"There is no tile {index} of level {level}: the reel is {self.looked_at.end} ns long.")
        return tile(list(enumerate(self.looked_at.lanes)), self.looked_at.curve, level, index)

    def op(self, process: int, number: int) -> Any:
        """One call with all that is known of it."""
        with opened(self.reel, ("ops", "inputs", "modules", "stacks", "frames", "threads")) as connection:
            rows = _rows(connection.execute(_OP, [process, number]))
            if not rows:
                raise OptionError(f"There is no call {number} in process {process}.")
            op = rows[0]
            op["frames"] = _rows(connection.execute(_FRAMES, [process, op["stack"]]))
            op["like"] = _rows(connection.execute(_LIKE, [process, op["name"], op["inputs"]]))[0]
            op["backward"] = _rows(connection.execute(_RELATED, [process, "fwd", number]))
            op["children"] = _rows(connection.execute(_CHILDREN, [process, number]))
            for link in ("parent", "fwd"):
                found = _rows(connection.execute(_NAMED, [process, op[link]])) if op[link] is not None else []
                op[f"{link}_name"] = found[0]["name"] if found else None
        op["begin"] = op["start_ns"] - self.looked_at.origin
        return op

    def area(self, query: Query) -> Any:
        """What is in a range of time: calls, time, bytes and FLOPs by name."""
        begin, end = self._range(query)
        with opened(self.reel, ("ops",)) as connection:
            return {"rows": _rows(connection.execute(_AREA, [begin, end]))}

    def _range(self, query: Query) -> tuple[int, int]:
        """As times since the epoch."""
        begin = _number(query, "begin", 0, self.looked_at.end, 0)
        end = _number(query, "end", begin, 1 << 62, self.looked_at.end)
        return begin + self.looked_at.origin, end + self.looked_at.origin

    def lines(self, query: Query) -> Any:
        """What lines of the source cost; of one file, if it is named."""
        table = lines(self.reel, self._range(query) if "begin" in query else None)
        file = query.get("file")
        rows = table.to_pylist()
        if file is not None:
            rows = [row for row in rows if row["file"] == file]
        return {"rows": rows, "origin": self.looked_at.origin}

    def source(self, query: Query) -> Any:
        """The text of a file that the reel's frames name."""
        file = query.get("file", "")
        with opened(self.reel, ("frames",)) as connection:
            named = connection.execute("SELECT count(*) FROM frames WHERE file = $1", [file]).fetchall()[0][0]
        if not named:
            raise OptionError("No frame of this reel is in that file.")
        text, why = text_of(file)
        return {"file": file, "text": text, "why": why}

    def search(self, query: Query) -> Any:
        """Calls whose name holds a text: how many, how long, and the longest of them."""
        text = query.get("q", "")
        if not text or len(text) > 200:
            raise OptionError("Give q, a text of 1 to 200 characters, to search for.")
        pattern = "%" + re.sub(r"([%_\\])", r"\\\1", text) + "%"
        with opened(self.reel, ("ops",)) as connection:
            head = _rows(connection.execute(_FOUND, [pattern]))[0]
            rows = _rows(connection.execute(_MATCHES, [self.looked_at.origin, pattern]))
        return {**head, "rows": rows}

    def diff(self, query: Query) -> Any:
        """What changed from this reel to the other."""
        if self.other is None:
            raise OptionError("There is no second reel: start with 'torchreel view a.reel b.reel'.")
        return diff(self.reel, self.other, query.get("by", "name")).as_dict()

    def flame(self, query: Query) -> Any:
        """Calls by the path that led to them, in a range of time."""
        begin, end = (moment - self.looked_at.origin for moment in self._range(query))
        return flame(self.looked_at.lanes, begin, end + 1)

    def memory(self, query: Query) -> Any:
        """Memory over time, and who holds it at a moment."""
        device = _number(query, "device", 0, 1_000, 0)
        at = _number(query, "at", 0, 1 << 62, 0) if query.get("at") else None
        return self.memories.answer(device, query.get("by", "stack"), at)

    def tape(self, query: Query) -> Any:
        """The ops of the tapes in the reel, each with its call."""
        with opened(self.reel, ("ops", "tape_ops")) as connection:
            return {"rows": _rows(connection.execute(_TAPE, [_number(query, "limit", 1, 100_000, 5_000)]))}

    def sql(self, body: bytes) -> Any:
        """Run a statement of the user's."""
        try:
            given = json.loads(body)
            statement = given["sql"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise OptionError('Send {"sql": "select ..."} as JSON.') from None
        if not isinstance(statement, str) or len(statement) > _LONGEST_QUERY:
            raise OptionError(f"A statement is a text of at most {_LONGEST_QUERY:,} characters.")
        begin, end = self._range({name: str(given[name]) for name in ("begin", "end") if given.get(name) is not None})
        found = sql.run(self.reel, statement, {"begin": begin, "end": end})
        return {"columns": found.columns, "rows": found.rows, "cut": found.cut}


def _number(query: Query, name: str, least: int, most: int, otherwise: int) -> int:
    text = query.get(name)
    if text is None or text == "":
        return otherwise
    if not re.fullmatch(r"-?\d{1,19}", text) or not least <= int(text) <= most:
        raise OptionError(f"{name}={text[:40]} is not a whole number from {least} to {most}.")
    return int(text)


def _rows(result: Any) -> list[dict[str, Any]]:
    names = [column[0] for column in result.description]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


_OP = """
    SELECT o.*, i.dims, i.dtypes, i.scalars, m.path AS module_path, m.class AS module_class, t.name AS thread_name
    FROM ops AS o
    LEFT JOIN inputs AS i ON i.process = o.process AND i.id = o.inputs
    LEFT JOIN modules AS m ON m.process = o.process AND m.id = o.module
    LEFT JOIN threads AS t ON t.process = o.process AND t.id = o.thread
    WHERE o.process = $1 AND o.id = $2"""
_FRAMES = """
    SELECT f.id, f.file, f.line, f.function FROM (
        SELECT process, unnest(frames) AS frame, generate_subscripts(frames, 1) AS position FROM stacks
        WHERE process = $1 AND id = $2
    ) AS s JOIN frames AS f ON f.process = s.process AND f.id = s.frame ORDER BY s.position"""
_LIKE = """
    SELECT count(*) AS calls, median(dur_ns)::BIGINT AS median_ns FROM ops
    WHERE process = $1 AND name = $2 AND inputs IS NOT DISTINCT FROM $3"""
_RELATED = """
    SELECT id, name, dur_ns, thread FROM ops WHERE process = $1 AND $2 = 'fwd' AND fwd = $3 ORDER BY id LIMIT 10"""
_CHILDREN = """
    SELECT id, name, kind, dur_ns, self_ns FROM ops WHERE process = $1 AND parent = $2
    ORDER BY dur_ns DESC, id LIMIT 20"""
_NAMED = "SELECT name FROM ops WHERE process = $1 AND id = $2"
_AREA = """
    SELECT name, kind, count(*) AS calls, sum(self_ns)::BIGINT AS self_ns, min(dur_ns) AS min_ns,
        round(avg(dur_ns))::BIGINT AS mean_ns, max(dur_ns) AS max_ns, sum(flops)::BIGINT AS flops,
        sum(greatest(self_alloc_bytes, 0))::BIGINT AS alloc_bytes
    FROM ops WHERE start_ns >= $1 AND start_ns < $2 GROUP BY ALL ORDER BY self_ns DESC, name LIMIT 100"""
_TAPE = """
    SELECT t.process, t.tape, t."index", t.name, t.op, t.module, t.file, t.line, t.backward, t.forward, t.inserted,
        t.inputs, t.outputs, o.dur_ns, o.self_ns, o.self_alloc_bytes AS alloc_bytes
    FROM tape_ops AS t LEFT JOIN ops AS o ON o.process = t.process AND o.id = t.op
    ORDER BY t.process, t.tape, t."index" LIMIT $1"""
_FOUND = """
    SELECT count(*) AS calls, coalesce(sum(self_ns), 0)::BIGINT AS self_ns FROM ops WHERE name ILIKE $1 ESCAPE '\\'"""
_MATCHES = """
    SELECT process, id, name, kind, start_ns - $1 AS begin, dur_ns FROM ops WHERE name ILIKE $2 ESCAPE '\\'
    ORDER BY start_ns, id LIMIT 2000"""
