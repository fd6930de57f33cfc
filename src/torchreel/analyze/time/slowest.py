"""Slowest: the longest calls of a group, as a row of `averages` opens to its calls."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from torchreel.analyze.connection import Range, opened
from torchreel.analyze.source.own_lines import own_lines
from torchreel.analyze.time.averages import GROUPS, STACK_TEXTS
from torchreel.errors import OptionError
from torchreel.reel import Reel

_STACK_FRAMES = 5


def slowest(
    reel: Reel,
    where: Mapping[str, str],
    limit: int = 20,
    within: Range | None = None,
) -> pa.Table:
    """The longest calls first, of the group that `where` names: {"name": "aten::mm", "module": "Net.fc"}.

    Its keys and texts are columns of `averages`; an empty text stands for none. Columns: process, id, name, kind,
    start_ns, dur_ns, self_ns, step, thread, thread_name, inputs (the shapes, else null) and tape_index (of the call on
    a tape, else null).
    """
    unknown = [group for group in where if group not in GROUPS]
    if unknown:
        raise OptionError(f"Calls cannot be chosen by {unknown[0]!r}: give some of {', '.join(GROUPS)}.")
    if limit < 1:
        raise OptionError(f"A limit of {limit} calls makes no sense: give a number from 1.")
    tables = {table for group in where for table in GROUPS[group].tables}
    with opened(reel, ("ops", "threads", "inputs", "tape_ops", *sorted(tables - _READ)), within) as connection:
        if "line" in where:
            connection.register("own_line", own_lines(reel))
        return connection.sql(_query(tuple(where), limit), params=list(where.values())).to_arrow_table()


_READ = {"ops", "threads", "inputs", "tape_ops"}


def _query(groups: tuple[str, ...], limit: int) -> str:
    joins = " ".join(dict.fromkeys(GROUPS[group].join for group in groups))
    conditions = [
        f"coalesce(({GROUPS[group].text})::VARCHAR, '') = ${number}" for number, group in enumerate(groups, 1)
    ]
    texts = f"source AS ({STACK_TEXTS.format(frames=_STACK_FRAMES)}), " if "stack" in groups else ""
    return f"""
        WITH {texts}found AS (
            SELECT g.* FROM ops AS g {joins} WHERE {" AND ".join(conditions) or "true"}
            ORDER BY g.dur_ns DESC, g.process, g.id LIMIT {limit}
        )
        SELECT f.process, f.id, f.name, f.kind, f.start_ns, f.dur_ns, f.self_ns, f.step, f.thread,
            t.name AS thread_name, i.dims AS inputs,
            (SELECT min("index") FROM tape_ops AS p WHERE p.process = f.process AND p.op = f.id) AS tape_index
        FROM found AS f
        LEFT JOIN threads AS t ON t.process = f.process AND t.id = f.thread
        LEFT JOIN inputs AS i ON i.process = f.process AND i.id = f.inputs
        ORDER BY f.dur_ns DESC, f.process, f.id"""
