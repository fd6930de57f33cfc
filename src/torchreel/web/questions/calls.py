"""Single calls: one with all that is known of it, those in a range of time, those whose name holds a text."""

from __future__ import annotations

import re
from typing import Any

from torchreel.errors import OptionError
from torchreel.web.query import Query, rows_of
from torchreel.web.viewed_reel import ViewedReel

_FOR_EVER = 1 << 62


def call(viewed: ViewedReel, process: int, number: int) -> Any:
    """One call with all that is known of it."""
    # Files are sorted by time: who says when a call began reads a part of them.
    start = _start_of(viewed, process, number)
    # A call is differentiated in its step or in the next one, and calls others before it ends.
    until = viewed.next_step_ends(process, start) or _FOR_EVER
    with viewed.asking() as connection:
        family = rows_of(connection.execute(_FAMILY, [process, number, start, until]))
        by_role = {role: [row for row in family if row["role"] == role] for role in ("self", "child", "backward")}
        (found,) = by_role["self"]
        found["children"] = [{name: row[name] for name in _OF_CHILD} for row in by_role["child"]]
        found["backward"] = [{name: row[name] for name in _OF_BACKWARD} for row in by_role["backward"]]
        del found["role"]
        shapes = rows_of(connection.execute(_INPUTS, [process, found["inputs"]])) if found["inputs"] is not None else []
        found.update(shapes[0] if shapes else dict.fromkeys(("dims", "dtypes", "scalars")))
        module = viewed.modules_by_id.get((process, found["module"]), {})
        found.update(module_path=module.get("path"), module_class=module.get("class"))
        found["thread_name"] = viewed.threads_by_id.get((process, found["thread"]), {}).get("name")
        found["frames"] = rows_of(connection.execute(_FRAMES, [process, found["stack"]]))
        for table, question in (("kernels", _LAUNCHED), ("flows", _FLOWS), ("counters", _COUNTERS)):
            known = [process, number] if table == "counters" else [viewed.origin, process, number]
            found[table] = rows_of(connection.execute(question, known)) if viewed.has_rows(table) else []
    for link in ("parent", "fwd"):
        found[f"{link}_name"] = _name_of(viewed, process, found[link])
    found["begin"] = start - viewed.origin
    return found


def _start_of(viewed: ViewedReel, process: int, number: int) -> int:
    found = viewed.find(process, number)
    if found is None:
        raise OptionError(f"There is no call {number} in process {process}.")
    lane, at = found
    return int(lane.starts[at]) + viewed.origin


def _name_of(viewed: ViewedReel, process: int, number: int | None) -> str | None:
    found = None if number is None else viewed.find(process, number)
    return None if found is None else viewed.labels[int(found[0].labels[found[1]])][0]


def like(viewed: ViewedReel, process: int, number: int) -> Any:
    """How many calls of the same name and inputs there are, and how long the one in the middle took."""
    start = _start_of(viewed, process, number)
    with viewed.asking() as connection:
        (key,) = connection.execute(_KEY, [process, number, start]).fetchall()
        return rows_of(connection.execute(_LIKE, [process, *key]))[0]


def kernel(viewed: ViewedReel, process: int, number: int) -> Any:
    """One activity of a device, with the call that launched it."""
    with viewed.asking() as connection:
        rows = rows_of(connection.execute(_KERNEL, [viewed.origin, process, number]))
    if not rows:
        raise OptionError(f"There is no kernel {number} in process {process}.")
    return rows[0]


def neighbour(viewed: ViewedReel, query: Query) -> Any:
    """The next call of a lane after one that begins at a time, or the one before it; null if there is none."""
    lanes = viewed.lanes_without(query.words("hide"))
    if not lanes:
        return None
    lane = lanes[query.number("lane", 0, len(lanes) - 1, 0)]
    at = lane.beginning(query.number("begin", 0, 1 << 62, 0)) + query.number("by", -1, 1, 1)
    if not 0 <= at < len(lane):
        return None
    return {"process": lane.process, "id": int(lane.ids[at]), "kernel": lane.thread < 0}


def area(viewed: ViewedReel, query: Query) -> Any:
    """What is in a range of time: calls, time, bytes and FLOPs by name."""
    with viewed.asking() as connection:
        return {"rows": rows_of(connection.execute(_AREA, list(viewed.range(query))))}


def search(viewed: ViewedReel, query: Query) -> Any:
    """Calls whose name holds a text: how many, how long, and the first of them."""
    text = query.text("q")
    if not text or len(text) > 200:
        raise OptionError("Give q, a text of 1 to 200 characters, to search for.")
    pattern = "%" + re.sub(r"([%_\\])", r"\\\1", text) + "%"
    with viewed.asking() as connection:
        head = rows_of(connection.execute(_FOUND, [pattern]))[0]
        rows = rows_of(connection.execute(_MATCHES, [viewed.origin, pattern]))
    return {**head, "rows": rows}


# A call, those that it called, the longest first, and its backward calls: all in one pass over the file.
_FAMILY = """
    SELECT *, CASE WHEN id = $2 THEN 'self' WHEN parent = $2 THEN 'child' ELSE 'backward' END AS role FROM ops
    WHERE process = $1 AND start_ns BETWEEN $3 AND $4 AND (id = $2 OR parent = $2 OR fwd = $2)
    QUALIFY row_number() OVER (PARTITION BY role ORDER BY if(role = 'child', -dur_ns, id), id) <= 20
    ORDER BY if(role = 'child', -dur_ns, id), id"""
_INPUTS = "SELECT dims, dtypes, scalars FROM inputs WHERE process = $1 AND id = $2"
_OF_CHILD = ("id", "name", "kind", "dur_ns", "self_ns")
_OF_BACKWARD = ("id", "name", "dur_ns", "thread")
_KEY = "SELECT name, inputs FROM ops WHERE process = $1 AND id = $2 AND start_ns = $3"
_FRAMES = """
    SELECT f.id, f.file, f.line, f.function FROM (
        SELECT process, unnest(frames) AS frame, generate_subscripts(frames, 1) AS position FROM stacks
        WHERE process = $1 AND id = $2
    ) AS s JOIN frames AS f ON f.process = s.process AND f.id = s.frame ORDER BY s.position"""
_LIKE = """
    SELECT count(*) AS calls, median(dur_ns)::BIGINT AS median_ns FROM ops
    WHERE process = $1 AND name = $2 AND inputs IS NOT DISTINCT FROM $3"""
_LAUNCHED = """
    SELECT id, name, device, stream, start_ns - $1 AS begin, dur_ns FROM kernels WHERE process = $2 AND op = $3
    ORDER BY start_ns, id LIMIT 10"""
_KERNEL = """
    SELECT k.process, k.id, k.name, k.device, k.stream, k.start_ns - $1 AS begin, k.dur_ns, k.op, o.name AS op_name,
        k.start_ns - o.start_ns AS after_launch_ns
    FROM kernels AS k LEFT JOIN ops AS o ON o.process = k.process AND o.id = k.op
    WHERE k.process = $2 AND k.id = $3"""
# The other end of each arrow that begins or ends at a call.
_FLOWS = """
    SELECT there.process, there.op AS id, there.name, there.time_ns - $1 AS begin, there."end" AS end
    FROM flows AS here JOIN flows AS there ON there.id = here.id AND there."end" <> here."end"
    WHERE here.process = $2 AND here.op = $3 AND there.op IS NOT NULL ORDER BY there.time_ns LIMIT 10"""
_COUNTERS = "SELECT name, value FROM counters WHERE process = $1 AND op = $2 ORDER BY name"
_AREA = """
    SELECT name, kind, count(*) AS calls, sum(self_ns)::BIGINT AS self_ns, min(dur_ns) AS min_ns,
        round(avg(dur_ns))::BIGINT AS mean_ns, max(dur_ns) AS max_ns, sum(flops)::BIGINT AS flops,
        sum(greatest(self_alloc_bytes, 0))::BIGINT AS alloc_bytes
    FROM (
        SELECT name, kind, start_ns, self_ns, dur_ns, flops, self_alloc_bytes FROM ops
        UNION ALL SELECT name, 'kernel', start_ns, dur_ns, dur_ns, NULL, NULL FROM kernels
    ) WHERE start_ns >= $1 AND start_ns < $2 GROUP BY ALL ORDER BY self_ns DESC, name LIMIT 100"""
_FOUND = """
    SELECT count(*) AS calls, coalesce(sum(self_ns), 0)::BIGINT AS self_ns FROM ops WHERE name ILIKE $1 ESCAPE '\\'"""
_MATCHES = """
    SELECT process, id, name, kind, start_ns - $1 AS begin, dur_ns FROM ops WHERE name ILIKE $2 ESCAPE '\\'
    ORDER BY start_ns, id LIMIT 2000"""
