"""Averages: where the time went. The calls of a reel, grouped by what they have in common.

What the columns mean:

- `self_ns` is time in the calls of the group and in nothing that they called. Python and module calls that are not
  shown count as part of the call around them, so that switching their recording on does not move time elsewhere.
- `total_ns` is time from their beginning to their end. Grouped by name it is the sum over the calls, as in
  torch.profiler; otherwise a call made from inside its own group is not counted again.
- A module's `self_ns` is that of the calls made in it and in none of its submodules; its `total_ns` has the submodules'
  too; its `calls` are calls of the module, where these were recorded, else of the ops in it.
- Percentages are of the sum of `self_ns`, as in torch.profiler; calls that ended on another thread have none.

All of it is one query in DuckDB, which reads only the columns it needs; ids become text after the grouping.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from torchreel.analyze.connection import opened
from torchreel.analyze.nesting import climb, kinds_in
from torchreel.errors import OptionError
from torchreel.reel import Reel

if TYPE_CHECKING:
    import duckdb

KINDS = ("op", "backward", "torchscript", "lite", "custom", "static_runtime", "range", "module", "python", "other")
# Kinds that say where a call happened rather than what was called: left out unless they are asked for.
PLACES = ("module", "python")

SORTS = {
    "self": "self_ns",
    "total": "total_ns",
    "count": "calls",
    "memory": "self_alloc_bytes",
    "flops": "flops",
    "average": "average_ns",
}


@dataclass(frozen=True)
class Group:
    """Something to group by: its columns in ops, its text, and the table that has the text."""

    keys: tuple[str, ...]
    text: str
    join: str = ""


GROUPS = {
    "name": Group(("name",), "g.name"),
    "overload": Group(("overload",), "coalesce(g.overload, '')"),
    "inputs": Group(
        ("process", "inputs"),
        "coalesce(replace(replace(inputs.dims, ', ', ','), ',', ', '), '(no inputs)')",
        "LEFT JOIN inputs ON inputs.process = g.process AND inputs.id = g.inputs",
    ),
    "module": Group(
        ("process", "module"),
        "coalesce(modules.path, '(no module)')",
        "LEFT JOIN modules ON modules.process = g.process AND modules.id = g.module",
    ),
    "stack": Group(
        ("process", "stack"),
        "coalesce(source.text, '(no stack)')",
        "LEFT JOIN source ON source.process = g.process AND source.id = g.stack",
    ),
    "thread": Group(
        ("process", "thread"),
        "CASE WHEN (SELECT count(*) FROM processes) > 1 THEN processes.name || '/' ELSE '' END"
        " || coalesce(nullif(threads.name, ''), 'thread') || ' (' || coalesce(threads.os_id, g.thread) || ')'",
        "LEFT JOIN threads ON threads.process = g.process AND threads.id = g.thread"
        " LEFT JOIN processes ON processes.process = g.process",
    ),
    "step": Group(("step",), "g.step"),
    "process": Group(
        ("process",),
        "holder.name || coalesce(' rank ' || holder.rank, '')",
        "LEFT JOIN processes AS holder ON holder.process = g.process",
    ),
    "kind": Group(("kind",), "g.kind"),
}


_MEASURES = ("calls", "self_ns", "total_ns", "sync_ns", "alloc_bytes", "self_alloc_bytes", "flops")


@dataclass(frozen=True)
class _Question:
    """One request for averages, checked."""

    by: tuple[str, ...]
    present: frozenset[str]  # the kinds of calls in the reel
    shown: frozenset[str]  # those of them to count
    calls_of_modules: bool
    stack_frames: int

    @property
    def keys(self) -> list[str]:
        """The columns of ops to group by first, while ids have no text yet."""
        return list(dict.fromkeys(key for group in self.by for key in GROUPS[group].keys))

    @property
    def nested(self) -> bool:
        """Whether calls of one group commonly call each other, so that a plain sum would count time twice."""
        return "name" not in self.by

    @property
    def by_module(self) -> bool:
        return self.nested and "module" in self.by

    @property
    def varying(self) -> list[str]:
        """Keys in which a call may differ from the call around it; module is a matter of its own."""
        return [key for key in self.keys if key not in ("process", "thread", "module")]


def averages(
    reel: Reel,
    by: str | Sequence[str] = ("name",),
    sort: str = "self",
    limit: int | None = None,
    kinds: Sequence[str] | None = None,
    stack_frames: int = 5,
) -> pa.Table:
    """The calls of a reel grouped `by` name, overload, inputs, module, stack, thread, step, process, kind, or several.

    `sort` is self, total, count, memory, flops or average, the greatest first; `limit` keeps the first rows; `kinds`
    names the kinds of calls to count (else all but module and python, and with modules when grouped by them);
    `stack_frames` is how many of the innermost frames of a stack make it the same one.
    """
    by = (by,) if isinstance(by, str) else tuple(dict.fromkeys(by))
    _check(by, sort, limit, kinds, stack_frames)
    with opened(reel) as connection:
        question = _question(by, kinds, kinds_in(connection), stack_frames)
        table: pa.Table = connection.sql(_query(connection, question, sort, limit)).to_arrow_table()
        return table


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


def _question(by: tuple[str, ...], kinds: Sequence[str] | None, present: set[str], stack_frames: int) -> _Question:
    modules = kinds is None and "module" in by and "name" not in by and "module" in present
    if kinds is not None:
        shown = present & set(kinds)
    else:
        shown = present - ({"python"} if modules else set(PLACES))
    calls_of_modules = modules and set(by) <= {"module", "thread", "step", "process"}
    return _Question(by, frozenset(present), frozenset(shown), calls_of_modules, stack_frames)


def _query(connection: duckdb.DuckDBPyConnection, question: _Question, sort: str, limit: int | None) -> str:
    names = ", ".join(f'"{group}"' for group in question.by)
    texts = ", ".join(f'{GROUPS[group].text} AS "{group}"' for group in question.by)
    joins = " ".join(dict.fromkeys(GROUPS[group].join for group in question.by))
    steps = [
        f"calls AS ({_calls(connection, question)})",
        *(_module_groups(question) if question.by_module else _plain_groups(question)),
        f"labelled AS (SELECT {texts}, {', '.join(f'g.{name}' for name in _MEASURES)} FROM g {joins})",
        f"summed AS (SELECT {names}, {', '.join(f'sum({name})::BIGINT AS {name}' for name in _MEASURES)}"
        " FROM labelled GROUP BY ALL)",
    ]
    if "stack" in question.by:
        steps.insert(0, f"source AS ({_SOURCE.format(frames=question.stack_frames)})")
    return (
        f"WITH RECURSIVE {', '.join(steps)} "
        f"SELECT {names}, calls, self_ns, {_share('self_ns')} AS self_percent, "
        f"total_ns, {_share('sync_ns')} AS total_percent, "
        "CASE WHEN calls > 0 THEN round(total_ns / calls)::BIGINT END AS average_ns, "
        "alloc_bytes, self_alloc_bytes, flops "
        f"FROM summed ORDER BY {SORTS[sort]} DESC NULLS LAST, {names}"
        + (f" LIMIT {limit}" if limit is not None else "")
    )


def _share(column: str) -> str:
    return f"CASE WHEN sum(self_ns) OVER () > 0 THEN 100.0 * {column} / sum(self_ns) OVER () ELSE 0.0 END"


# The innermost frames of each stack, as text.
_SOURCE = """
    SELECT s.process, s.id, string_agg(f.file || '(' || f.line || '): ' || f.function, chr(10) ORDER BY s.place) AS text
    FROM (
        SELECT process, id, unnest(frames[1:{frames}]) AS frame, generate_subscripts(frames[1:{frames}], 1) AS place
        FROM stacks
    ) AS s
    JOIN frames AS f ON f.process = s.process AND f.id = s.frame
    GROUP BY s.process, s.id
"""


def _calls(connection: duckdb.DuckDBPyConnection, question: _Question) -> str:
    """The calls to count, each with its own time, and with whether the call around it belongs to its group."""
    shown = ", ".join(f"'{kind}'" for kind in sorted(question.shown)) or "NULL"
    own_ns, own_bytes = "o.self_ns", "o.self_alloc_bytes"
    parent, inside, around = "o.parent", "false", ""
    joins = []
    silent = question.present & set(PLACES) - question.shown
    if silent:
        climb(connection, "silent", silent)
        joins.append(
            "LEFT JOIN (SELECT process, up, sum(self_ns)::BIGINT AS self_ns, sum(self_alloc_bytes)::BIGINT AS bytes"
            " FROM silent GROUP BY ALL) AS r ON r.process = o.process AND r.up = o.id"
        )
        own_ns = "o.self_ns + coalesce(r.self_ns, 0)"
        own_bytes = "coalesce(o.self_alloc_bytes + r.bytes, o.self_alloc_bytes)"
    if question.nested:
        hidden = question.present - question.shown
        if hidden:
            climb(connection, "hidden", hidden)
            joins.append("LEFT JOIN hidden AS h ON h.process = o.process AND h.id = o.parent")
            parent = "CASE WHEN h.id IS NULL THEN o.parent ELSE h.up END"
        inside = f"{parent} IS NOT NULL"
        if question.varying or question.by_module:
            joins.append(f"LEFT JOIN ops AS p ON p.process = o.process AND p.id = {parent}")
            equal = [f"o.{key} IS NOT DISTINCT FROM p.{key}" for key in question.varying]
            inside = " AND ".join(["p.id IS NOT NULL", *equal])
            around = ", p.module AS caller_module"
    return (
        f"SELECT o.*, {own_ns} AS own_ns, {own_bytes} AS own_bytes, {inside} AS inside{around} "
        f"FROM ops AS o {' '.join(joins)} WHERE o.kind IN ({shown})"
    )


def _measured(question: _Question) -> str:
    """The sums over a group of calls; a module's totals are put together later."""
    outermost = "NOT inside" if question.nested and not question.by_module else "true"
    calls = "kind = 'module' OR module IS NULL" if question.calls_of_modules else "true"
    return ", ".join(
        (
            f"count(*) FILTER (WHERE {calls}) AS calls",
            "sum(own_ns)::BIGINT AS self_ns",
            f"coalesce(sum(dur_ns) FILTER (WHERE {outermost}), 0)::BIGINT AS total_ns",
            f'coalesce(sum(dur_ns) FILTER (WHERE {outermost} AND "async" IS NOT TRUE), 0)::BIGINT AS sync_ns',
            f"sum(CASE WHEN {outermost} THEN alloc_bytes ELSE alloc_bytes - alloc_bytes END)::BIGINT AS alloc_bytes",
            "sum(own_bytes)::BIGINT AS self_alloc_bytes",
            "sum(flops)::BIGINT AS flops",
        )
    )


def _plain_groups(question: _Question) -> list[str]:
    return [f"g AS (SELECT {', '.join(question.keys)}, {_measured(question)} FROM calls GROUP BY ALL)"]


def _module_groups(question: _Question) -> list[str]:
    """Each module with the time of its own calls, and the totals of its submodules as well.

    A call counts in the total of every module that holds it, except those that hold the call around it too.
    """
    others = "".join(f", pairs.{key}" for key in question.keys if key not in ("process", "module"))
    return [
        f"""pairs AS (
            SELECT process, module{others.replace("pairs.", "")}, inside, caller_module, {_measured(question)}
            FROM calls GROUP BY ALL
        )""",
        """chain AS (
            SELECT process, id AS module, id AS holder, parent FROM modules
            UNION SELECT c.process, c.module, m.id, m.parent
            FROM chain AS c JOIN modules AS m ON m.process = c.process AND m.id = c.parent
        )""",
        f"""g AS (
            SELECT process, module{others}, calls, self_ns, 0::BIGINT AS total_ns, 0::BIGINT AS sync_ns,
                alloc_bytes - alloc_bytes AS alloc_bytes, self_alloc_bytes, flops
            FROM pairs
            UNION ALL
            SELECT pairs.process, held.holder{others}, 0, 0, total_ns, sync_ns,
                alloc_bytes, alloc_bytes - alloc_bytes, NULL
            FROM pairs
            LEFT JOIN chain AS held ON held.process = pairs.process AND held.module = pairs.module
            LEFT JOIN chain AS around ON pairs.inside AND around.process = pairs.process
                AND around.module = pairs.caller_module AND around.holder = held.holder
            WHERE around.holder IS NULL
                AND NOT (pairs.inside AND held.holder IS NULL AND pairs.caller_module IS NULL)
        )""",
    ]
