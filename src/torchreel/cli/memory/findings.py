"""The further sections of `torchreel memory`: fragmentation, leaks and spikes, with what to do about them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from torchreel._units import bytes_text, count_text
from torchreel.analyze.memory.sentences import of_fragmentation, of_leaks, of_spikes
from torchreel.cli.memory.peak import Section, when
from torchreel.cli.terminal.table import Column
from torchreel.cli.terminal.units import time_text

if TYPE_CHECKING:
    import pyarrow as pa

    from torchreel.analyze.memory.leaks import Leaks
    from torchreel.analyze.memory.report import MemoryReport
    from torchreel.analyze.memory.spikes import Spike


def fragmentation(report: MemoryReport, limit: int | None) -> Section:
    found, sentences = report.fragmentation, of_fragmentation(report)
    if found is None:
        return "Fragmentation", sentences, []
    rows = found.pins.slice(0, limit) if limit else found.pins
    columns = _pin_columns(rows) if found.notable and rows.num_rows else []
    return "Fragmentation at the end", sentences, columns


def _pin_columns(rows: pa.Table) -> list[Column]:
    values = {name: rows[name].to_pylist() for name in rows.column_names}
    return [
        Column("Pinned", [bytes_text(size) for size in values["pinned"]], number=True),
        Column("Segments", [f"{count:,}" for count in values["segments"]], number=True),
        Column("Blocks", [f"{count:,}" for count in values["blocks"]], number=True),
        Column("Their bytes", [bytes_text(size) for size in values["bytes"]], number=True),
        Column("Line", values["name"], keep_end=True),
    ]


def leaks(source: str, found: Leaks, limit: int | None) -> Section:
    sentences = of_leaks(found, Path(source).is_dir())
    if found.verdict != "found":
        return "Leaks", sentences, []
    rows = found.growing.slice(0, limit) if limit else found.growing
    if rows.num_rows < found.growing.num_rows:
        sentences.append(f"There are {found.growing.num_rows - rows.num_rows} more: --limit 0 shows all.")
    sentences.append("The blocks are made by:")
    return "Leaks", sentences, _leak_columns(rows)


def _leak_columns(rows: pa.Table) -> list[Column]:
    values = {name: rows[name].to_pylist() for name in rows.column_names}
    grown = [
        "one that grows" if one else f"{count:.1f}".removesuffix(".0")
        for one, count in zip(values["one_block"], values["blocks_per_step"], strict=True)
    ]
    return [
        Column("Bytes a step", [bytes_text(round(size)) for size in values["bytes_per_step"]], number=True),
        Column("Blocks a step", grown, number=True),
        Column("By now", [bytes_text(size) for size in values["bytes"]], number=True),
        Column("Category", [name.replace("_", " ") for name in values["category"]]),
        Column("Line", values["name"], keep_end=True),
    ]


def spikes(report: MemoryReport, limit: int | None) -> Section:
    rows = report.spikes[:limit] if limit else report.spikes
    times = [when(spike.moment) for spike in rows]
    columns = [
        Column("Above", [bytes_text(spike.bytes) for spike in rows], number=True),
        Column("Reaches", [("the peak" if spike.at_peak else bytes_text(spike.level)) for spike in rows], number=True),
        Column("At", [time for time, _ in times], number=True),
        Column("Step", [step for _, step in times], number=True),
        Column("Lasts", [_lasts(spike) for spike in rows], number=True),
        Column("Times", [f"{spike.times:,}" for spike in rows], number=True),
        Column("Line", [spike.lines[0][0] if spike.lines else "(unknown)" for spike in rows], keep_end=True),
    ]
    return (
        "Spikes: short-lived blocks above the level around them",
        of_spikes(report),
        [c for c in columns if any(c.cells)],
    )


def _lasts(spike: Spike) -> str:
    return time_text(spike.duration_ns) if spike.duration_ns is not None else count_text(spike.events, "event")
