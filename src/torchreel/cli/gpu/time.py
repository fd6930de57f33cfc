"""The first sections of `torchreel gpu`: where the time went, why devices were idle, and what would change that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchreel._units import count_text
from torchreel.analyze.units import percent_text
from torchreel.cli.terminal.table import Column, one_line
from torchreel.cli.terminal.units import time_text

if TYPE_CHECKING:
    from torchreel.analyze.gpu.answers import Gpu
    from torchreel.cli.gpu.screen import Section


def devices(answers: Gpu) -> Section:
    """A sentence on the whole, and a row per device."""
    rows = answers.devices.to_pylist()
    window = "" if answers.step is None else f", what was launched in step {answers.step}"
    heading = f"{answers.reel.path}: where the time of {_whose(rows)} went{window}"
    if not rows:
        return f"{answers.reel.path}{window}", [] if answers.of_cpu else ["There is nothing to show."], []
    return heading, _sentences(rows), _columns(answers, rows)


def _whose(rows: list[dict[str, Any]]) -> str:
    if len(rows) == 1:
        return _name(rows[0])
    return f"{len(rows)} devices"


def _name(row: dict[str, Any]) -> str:
    model = f" ({row['model']})" if row["model"] else ""
    rank = f" of rank {row['rank']}" if row["rank"] is not None else ""
    return f"{row['device']}{model}{rank}"


def _sentences(rows: list[dict[str, Any]]) -> list[str]:
    if len(rows) != 1:
        return []
    (row,) = rows
    parts = [f"{_share(row['busy_ns'], row)} of {time_text(row['span_ns'])} busy"]
    if row["communication_ns"]:
        hidden = 100 * row["overlap_ns"] / row["communication_ns"]
        parts.append(f"{percent_text(hidden)} of communication behind compute")
    return [f"{', '.join(parts)}."]


def _share(ns: int, row: dict[str, Any]) -> str:
    return percent_text(100 * ns / row["span_ns"]) if row["span_ns"] else "0 %"


def _columns(answers: Gpu, rows: list[dict[str, Any]]) -> list[Column]:
    parts = {
        "Compute": "compute_ns",
        "Exposed communication": "exposed_communication_ns",
        "Exposed memory": "exposed_memory_ns",
        "Idle": "idle_ns",
    }
    cores = {(row["process"], row["device"]): row["percent"] for row in answers.tensor_cores.to_pylist()}
    used = [cores.get((row["process"], row["device"])) for row in rows]
    several = len({row["process"] for row in rows}) > 1
    columns = [
        *([Column("Process", [str(row["process"]) for row in rows], number=True)] if several else []),
        Column("Rank", ["" if row["rank"] is None else str(row["rank"]) for row in rows], number=True),
        Column("Device", [row["device"] for row in rows]),
        Column("Span", [time_text(row["span_ns"]) for row in rows], number=True),
        *(
            Column(name, [f"{time_text(row[key])} {_share(row[key], row):>6}" for row in rows], number=True)
            for name, key in parts.items()
            if key in ("compute_ns", "idle_ns") or any(row[key] for row in rows)
        ),
        Column("Occupancy", [_percent(row["occupancy_percent"]) for row in rows], number=True),
        Column("SM efficiency", [_percent(row["sm_efficiency_percent"]) for row in rows], number=True),
        Column("Tensor cores", [_percent(percent) for percent in used], number=True),
    ]
    return [column for column in columns if any(column.cells)]


def _percent(value: float | None) -> str:
    return "" if value is None else percent_text(value)


def idle(answers: Gpu, limit: int | None) -> Section:
    """The causes by their sum, then the ops and lines that make most of it."""
    rows = answers.idle.to_pylist()
    whole = sum(row["ns"] for row in rows)
    heading = f"Why idle: {time_text(whole)}"
    if not whole:
        return heading, [], []
    causes: dict[str, int] = {}
    for row in rows:
        causes[row["cause"]] = causes.get(row["cause"], 0) + row["ns"]
    parts = [
        f"{cause} {percent_text(100 * ns / whole)}"
        for cause, ns in sorted(causes.items(), key=lambda item: -item[1])
        if ns
    ]
    few = rows[:limit]
    columns = [
        Column("Idle", [time_text(row["ns"]) for row in few], number=True),
        Column("Share", [f"{100 * row['ns'] / whole:.1f}%" for row in few], number=True),
        Column("Cause", [row["cause"] for row in few]),
        Column("Op", [row["op"] or "" for row in few]),
        Column("Your line", [row["line"] or "" for row in few], keep_end=True),
    ]
    return heading, [f"{', '.join(parts)}."], [column for column in columns if any(column.cells)]


def critical_path(answers: Gpu, limit: int | None) -> Section:
    """What decided how long it took."""
    rows = answers.critical_path.slice(0, limit).to_pylist()
    whole = sum(answers.critical_path["ns"].to_pylist())
    columns = [
        Column("On the path", [time_text(row["ns"]) for row in rows], number=True),
        Column("Share", [f"{row['percent']:.1f}%" for row in rows], number=True),
        Column("What", [one_line(row["what"]) for row in rows]),
    ]
    return f"Critical path: {time_text(whole)}", [], columns if rows else []


def what_if(answers: Gpu) -> Section:
    """What the changes that were asked for would gain."""
    rows = answers.what_if.to_pylist()
    changes = " and ".join(f"{pattern} {factor:g} times faster" for pattern, factor in answers.changes)
    sentences = []
    for row in rows:
        who = f"Process {row['process']}: " if len(rows) > 1 else ""
        found = f"{count_text(row['kernels'], 'kernel')} and {count_text(row['calls'], 'call')} found"
        if row["refused"]:
            sentences.append(f"{who}{row['refused']}")
        else:
            sentences.append(
                f"{who}{time_text(row['before_ns'])} would become {time_text(row['after_ns'])}: "
                f"{percent_text(row['percent'])} less, {row['speedup']:.3f} times as fast; {found}."
            )
    return f"If {changes}", [*sentences, *answers.what_if_notes], []
