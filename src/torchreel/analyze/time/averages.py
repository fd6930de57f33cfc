"""Averages: where the time went. The calls of a reel, grouped by what they have in common.

What the columns mean:

- `self_ns` is time in the calls of the group and in nothing that they called. Python and module calls that are not
  shown count as part of the call around them, so that switching their recording on does not move time elsewhere.
- `total_ns` is time from their beginning to their end. A call made by a call of its own group is not counted again.
- `calls` counts them; an op called by an op of its own name is that call passed on to another overload, as
  torch.profiler sees it too, and counts once when grouped by name.
- A module's `self_ns` is that of the calls made in it and in none of its submodules; its `total_ns` has the submodules'
  too; its `calls` are calls of the module, where these were recorded, else of the ops in it.
- In a reel with activities of devices, `kernels` and `self_device_ns` are what the calls launched themselves and the
  time that this took on the device; `device_ns` is with what the calls inside launched, and counts like `total_ns`.
- Percentages are of the sum of `self_ns`, as in torch.profiler; calls that ended on another thread have none.

DuckDB does all of it and reads only the columns it needs; ids become text after the grouping.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from torchreel.analyze.connection import Range, opened
from torchreel.analyze.gpu.call_time import call_time
from torchreel.analyze.source.own_lines import own_lines
from torchreel.analyze.time.groups import OF_DEVICES, PLACES, Grouping, grouped
from torchreel.analyze.time.nesting import kinds_in
from torchreel.errors import OptionError
from torchreel.reel import Reel

if TYPE_CHECKING:
    import duckdb

KINDS: tuple[str, ...] = (
    "op",
    "backward",
    "torchscript",
    "lite",
    "custom",
    "static_runtime",
    "range",
    "module",
    "python",
)
KINDS += ("runtime", "driver", "overhead", "other")

SORTS = {
    "self": "self_ns",
    "total": "total_ns",
    "count": "calls",
    "memory": "self_alloc_bytes",
    "flops": "flops",
    "average": "average_ns",
    "device": "device_ns",
}


@dataclass(frozen=True)
class Group:
    """Something to group by: its columns in ops, its text, how it is joined and the tables that this takes."""

    keys: tuple[str, ...]
    text: str
    join: str = ""
    tables: tuple[str, ...] = ()


GROUPS = {
    "name": Group(("name",), "g.name"),
    "overload": Group(("overload",), "coalesce(g.overload, '')"),
    "inputs": Group(
        ("process", "inputs"),
        "coalesce(replace(replace(inputs.dims, ', ', ','), ',', ', '), '(no inputs)')",
        "LEFT JOIN inputs ON inputs.process = g.process AND inputs.id = g.inputs",
        ("inputs",),
    ),
    "module": Group(
        ("process", "module"),
        "coalesce(modules.path, '(no module)')",
        "LEFT JOIN modules ON modules.process = g.process AND modules.id = g.module",
        ("modules",),
    ),
    "stack": Group(
        ("process", "stack"),
        "coalesce(source.text, '(no stack)')",
        "LEFT JOIN source ON source.process = g.process AND source.id = g.stack",
        ("stacks", "frames"),
    ),
    "line": Group(
        ("process", "stack"),
        "coalesce(own_line.text, '(no stack)')",
        "LEFT JOIN own_line ON own_line.process = g.process AND own_line.id = g.stack",
        ("stacks", "frames"),
    ),
    "thread": Group(
        ("process", "thread"),
        "CASE WHEN (SELECT count(*) FROM processes) > 1 THEN processes.name || '/' ELSE '' END"
        " || coalesce(nullif(threads.name, ''), 'thread') || ' (' || coalesce(threads.os_id, g.thread) || ')'",
        "LEFT JOIN threads ON threads.process = g.process AND threads.id = g.thread"
        " LEFT JOIN processes ON processes.process = g.process",
        ("threads", "processes"),
    ),
    "step": Group(("step",), "g.step"),
    "process": Group(
        ("process",),
        "holder.name || coalesce(' rank ' || holder.rank, '')",
        "LEFT JOIN processes AS holder ON holder.process = g.process",
        ("processes",),
    ),
    "kind": Group(("kind",), "g.kind"),
}


def averages(
    reel: Reel,
    by: str | Sequence[str] = ("name",),
    sort: str = "self",
    limit: int | None = None,
    kinds: Sequence[str] | None = None,
    stack_frames: int = 5,
    within: Range | None = None,
) -> pa.Table:
    """The calls of a reel grouped `by` name, overload, inputs, module, line, stack, thread, step, process, kind.

    Several of them may be given. A line is the innermost of the user's own in the stack.

    `sort` is self, total, count, memory, flops, average or device, the greatest first; `device` is as self in a reel
    without activities of a device; `limit` keeps the first rows; `kinds`
    names the kinds of calls to count (else all but module and python, and with modules when grouped by them);
    `stack_frames` is how many of the innermost frames of a stack make it the same one; `within` is a range of times in
    which calls must have begun.
    """
    by = (by,) if isinstance(by, str) else tuple(dict.fromkeys(by))
    _check(by, sort, limit, kinds, stack_frames)
    texts = {table for group in by for table in GROUPS[group].tables}
    with opened(reel, ("ops", *sorted(texts)), within) as connection:
        if "line" in by:
            connection.register("own_line", own_lines(reel))
            if "stack" not in by:
                _give_lines_one_stack(connection)
        grouping = _grouping(by, kinds, kinds_in(connection), _add_devices(connection, reel))
        steps = grouped(connection, grouping)
        table: pa.Table = connection.sql(_query(by, grouping, steps, sort, limit, stack_frames)).to_arrow_table()
        return table


def _give_lines_one_stack(connection: duckdb.DuckDBPyConnection) -> None:
    """Let all stacks of a line be one, so that a call within another of its line is not counted again."""
    connection.execute(
        "CREATE TEMP TABLE of_line AS"
        " SELECT process, id, min(id) OVER (PARTITION BY process, text) AS stack FROM own_line"
    )
    connection.execute("ALTER VIEW ops RENAME TO ops_of_stacks")
    connection.execute(
        "CREATE TEMP VIEW ops AS SELECT o.* REPLACE (coalesce(l.stack, o.stack) AS stack) FROM ops_of_stacks AS o"
        " LEFT JOIN of_line AS l ON l.process = o.process AND l.id = o.stack"
    )


def _add_devices(connection: duckdb.DuckDBPyConnection, reel: Reel) -> bool:
    """Give `ops` the time of devices, if there is any."""
    times = call_time(reel)
    if times is None:
        return False
    connection.register("call_time", times)
    connection.execute("CREATE TEMP TABLE device_time AS SELECT * FROM call_time")
    connection.execute("ALTER VIEW ops RENAME TO ops_of_host")
    columns = ", ".join(f"coalesce(d.{name}, 0) AS {name}" for name in OF_DEVICES)
    connection.execute(
        f"CREATE TEMP VIEW ops AS SELECT o.*, {columns} FROM ops_of_host AS o"
        " LEFT JOIN device_time AS d ON d.process = o.process AND d.id = o.id"
    )
    return True


def _check(by: tuple[str, ...], sort: str, limit: int | None, kinds: Sequence[str] | None, stack_frames: int) -> None:
    unknown = [group for group in by if group not in GROUPS]
    if unknown or not by:
        what = repr(unknown[0]) if unknown else "nothing"
        raise OptionError(f"Calls cannot be grouped by {what}: give one or more of {', '.join(GROUPS)}.")
    if sort not in SORTS:
        raise OptionError(f"Averages cannot be sorted by {sort!r}: give one of {', '.join(SORTS)}.")
    if limit is not None and limit < 0:
        raise OptionError(f"A limit of {limit} rows makes no sense: give a number from 0, or None for all rows.")
    if stack_frames < 1:
        raise OptionError(f"A stack of {stack_frames} frames makes no sense: give a number from 1.")
    for kind in kinds or ():
        if kind not in KINDS:
            raise OptionError(f"There is no kind of call {kind!r}: give one or more of {', '.join(KINDS)}.")


def _grouping(by: tuple[str, ...], kinds: Sequence[str] | None, present: set[str], devices: bool) -> Grouping:
    with_submodules = "module" in by and "name" not in by
    calls_of_modules = False
    if kinds is not None:
        shown = present & set(kinds)
    elif with_submodules and "module" in present:
        shown = present - {"python"}
        calls_of_modules = set(by) <= {"module", "thread", "step", "process"}
    else:
        shown = present - set(PLACES)
    return Grouping(
        keys=tuple(dict.fromkeys(key for group in by for key in GROUPS[group].keys)),
        present=frozenset(present),
        shown=frozenset(shown),
        by_name="name" in by,
        with_submodules=with_submodules,
        calls_of_modules=calls_of_modules,
        devices=devices,
    )


def _query(
    by: tuple[str, ...], grouping: Grouping, steps: list[str], sort: str, limit: int | None, stack_frames: int
) -> str:
    """The groups with text in place of ids, added up by that text, with shares and averages."""
    names = ", ".join(f'"{group}"' for group in by)
    order = SORTS["self" if sort == "device" and not grouping.devices else sort]
    texts = ", ".join(f'{GROUPS[group].text} AS "{group}"' for group in by)
    joins = " ".join(dict.fromkeys(GROUPS[group].join for group in by))
    steps = [
        *([f"source AS ({STACK_TEXTS.format(frames=stack_frames)})"] if "stack" in by else []),
        *steps,
        f"labelled AS (SELECT {texts}, {', '.join(f'g.{name}' for name in grouping.measures)} FROM g {joins})",
        f"summed AS (SELECT {names}, {', '.join(f'sum({name})::BIGINT AS {name}' for name in grouping.measures)}"
        " FROM labelled GROUP BY ALL)",
    ]
    return (
        f"WITH RECURSIVE {', '.join(steps)} "
        f"SELECT {names}, calls, self_ns, {_share('self_ns')} AS self_percent, "
        f"total_ns, {_share('sync_ns')} AS total_percent, "
        "CASE WHEN calls > 0 THEN round(total_ns / calls)::BIGINT END AS average_ns, "
        f"alloc_bytes, self_alloc_bytes, flops{grouping.and_devices(*OF_DEVICES)} "
        f"FROM summed ORDER BY {order} DESC NULLS LAST, {names}" + (f" LIMIT {limit}" if limit is not None else "")
    )


def _share(column: str) -> str:
    return f"CASE WHEN sum(self_ns) OVER () > 0 THEN 100.0 * {column} / sum(self_ns) OVER () ELSE 0.0 END"


# The innermost frames of each stack, as text.
STACK_TEXTS = """
    SELECT s.process, s.id, string_agg(f.file || '(' || f.line || '): ' || f.function, chr(10) ORDER BY s.place) AS text
    FROM (
        SELECT process, id, unnest(frames[1:{frames}]) AS frame, generate_subscripts(frames[1:{frames}], 1) AS place
        FROM stacks
    ) AS s
    JOIN frames AS f ON f.process = s.process AND f.id = s.frame
    GROUP BY s.process, s.id
"""
