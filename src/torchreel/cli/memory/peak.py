"""The first sections of `torchreel memory`: how much there was at the peak, when, and who held it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torchreel._units import bytes_text, count_text
from torchreel.analyze.memory.sentences import of_failures, of_history, of_holders, of_no_history, steps_text
from torchreel.cli.terminal.table import Column
from torchreel.cli.terminal.units import time_text

if TYPE_CHECKING:
    import pyarrow as pa

    from torchreel.analyze.memory.peak import Moment
    from torchreel.analyze.memory.report import Failure, MemoryReport

Section = tuple[str, list[str], list[Column]]  # a heading, sentences, a table

FEW = 3  # rows of what is shown beside the holders, unless more are asked for
_HEADERS = {"stack": "Line", "module": "Module", "op": "Op", "category": "Category"}


def head(source: str, report: MemoryReport) -> Section:
    owner = f" in process {report.process_name}" if report.process else ""
    heading = f"{source}: {report.device}{owner}"
    if report.peak is None:
        return heading, of_no_history(report), []
    parts = [count_text(report.allocs, "alloc")]
    if report.duration_ns is not None:
        parts.append(f"in {time_text(report.duration_ns)}")
    words = " ".join(parts) + (f", {steps_text(report.steps, report.steps_source)}" if report.steps else "")
    sentences = [f"{words}. Bytes are those that the program asked for.", *of_history(report)]
    return heading, sentences, _peak_columns(report)


def _peak_columns(report: MemoryReport) -> list[Column]:
    peak = report.peak
    assert peak is not None
    rows = [("allocated", peak.allocated.bytes, peak.allocated.moment)]
    if peak.active.bytes != peak.allocated.bytes:
        rows.append(("active", peak.active.bytes, peak.active.moment))
    else:
        rows[0] = ("allocated and active", *rows[0][1:])
    if peak.reserved is not None:
        rows.append(("reserved", peak.reserved.bytes, peak.reserved.moment))
    cells = [(f"Peak {name}", bytes_text(size), *when(at), where(at)) for name, size, at in rows]
    if peak.reserved is None:
        cells.append(("Peak reserved", "none", "", "", "the system's allocator reserves nothing"))
    first, size, time, step, location = zip(*cells, strict=True)
    columns = [
        Column("", first),
        Column("Bytes", size, number=True),
        Column("At", time, number=True),
        Column("Step", step, number=True),
        Column("Where", location),
    ]
    return [column for column in columns if any(column.cells)]


def when(at: Moment) -> tuple[str, str]:
    """The time since the history began, or the event; and the step."""
    if at.event < 0:
        time = "the beginning"
    else:
        time = time_text(at.since_start_ns) if at.since_start_ns is not None else f"event {at.event:,}"
    return time, "" if at.step is None else str(at.step)


def where(at: Moment) -> str:
    """The range or phase, the op and the line."""
    line = "" if at.line is None or at.line.startswith("(") else at.line
    doing = ", ".join(text for text in (at.range or at.phase, at.op) if text)
    return "\n".join(text for text in (doing, line) if text)


def failures(failures: Sequence[Failure]) -> Section:
    return "Out of memory", of_failures(failures, when, FEW), []


def holders(report: MemoryReport, limit: int | None) -> Section:
    moment = "the peak" if report.peak is not None else "memory at the end"
    heading = f"Who holds {moment}: {bytes_text(report.held)} in {count_text(report.held_blocks, 'block')}"
    rows = report.holders.slice(0, limit) if limit else report.holders
    columns = _holder_columns(rows, report.by) if rows.num_rows else []
    if rows.num_rows < report.holders.num_rows:
        heading += f"; the first {rows.num_rows} of {report.holders.num_rows:,} {_rows_word(report.by)}"
    return heading, of_holders(report), columns


def _rows_word(by: str) -> str:
    return {"stack": "lines", "module": "modules", "op": "ops", "category": "categories"}[by]


def _holder_columns(rows: pa.Table, by: str) -> list[Column]:
    values = {name: rows[name].to_pylist() for name in rows.column_names}
    columns = [
        Column("Bytes", [bytes_text(size) for size in values["bytes"]], number=True),
        Column("Share", [f"{share:.1f}%" for share in values["percent"]], number=True),
        Column("Blocks", [f"{count:,}" for count in values["blocks"]], number=True),
        Column("Largest", [bytes_text(size) for size in values["largest"]], number=True),
    ]
    if by != "category":
        columns.append(Column("Category", [_categories(names) for names in values["categories"]]))
    names = [name.replace("_", " ") if by == "category" else name for name in values["name"]]
    columns.append(Column(_HEADERS[by], names, keep_end=by in ("stack", "module")))
    return columns


def _categories(names: str) -> str:
    first, *others = names.replace("_", " ").split(", ")
    return f"{first}, {others[0]}{' …' if len(others) > 1 else ''}" if others else first
