"""The first sections of `torchreel memory`: how much there was at the peak, when, and who held it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torchreel.cli.terminal.table import Column
from torchreel.cli.terminal.units import bytes_text, count_text, time_text

if TYPE_CHECKING:
    import pyarrow as pa

    from torchreel.analyze.memory.peak import Moment
    from torchreel.analyze.memory.report import Failure, MemoryReport

Section = tuple[str, list[str], list[Column]]  # a heading, sentences, a table

FEW = 3  # rows of what is shown beside the holders, unless more are asked for
_MOST, _MUCH = 50, 10  # percent of the peak
_HEADERS = {"stack": "Line", "module": "Module", "op": "Op", "category": "Category"}


def head(source: str, report: MemoryReport) -> Section:
    owner = f" in process {report.process_name}" if report.process else ""
    heading = f"{source}: {report.device}{owner}"
    if report.peak is None:
        return heading, _no_history(report), []
    parts = [count_text(report.allocs, "alloc")]
    if report.duration_ns is not None:
        parts.append(f"in {time_text(report.duration_ns)}")
    words = " ".join(parts) + (f", {steps_text(report.steps, report.steps_source)}" if report.steps else "")
    sentences = [f"{words}. Bytes are those that the program asked for."]
    if report.history == "mid-run" and report.older_blocks:
        share = 100 * report.older_bytes / max(report.held, 1)
        sentences.append(
            f"The history begins in the middle of the run: {count_text(report.older_blocks, 'block')} of the peak, "
            f"{bytes_text(report.older_bytes)} or {share:.0f} %, {are(report.older_blocks)} older than it."
        )
    sentences += _losses(report)
    return heading, sentences, _peak_columns(report)


def steps_text(count: int, source: str) -> str:
    return count_text(count, "step") + (f" ({source})" if source else "")


def are(count: int) -> str:
    return "is" if count == 1 else "are"


def _losses(report: MemoryReport) -> list[str]:
    lines = []
    if report.lost_events:
        lines.append(f"{count_text(report.lost_events, 'event')} were not kept: what happened in them is not known.")
    if report.unknown_frees:
        lines.append(
            f"{count_text(report.unknown_frees, 'block')} of unknown size that were older than the history were freed."
        )
    if report.note:
        lines.append(report.note)
    return lines


def _no_history(report: MemoryReport) -> list[str]:
    return [
        "There is no usable history of allocs, only the final state: when the peak was, what led to it, leaks and "
        "spikes cannot be told.",
        *how_to_record(),
        f"In the final state {bytes_text(report.final_allocated)} {are(1)} allocated in "
        f"{count_text(report.final_blocks, 'block')}.",
    ]


def how_to_record() -> list[str]:
    return [
        "To record one: torch.cuda.memory._record_memory_history() before the part of interest (for CPU tensors too: "
        "torchreel.memory.record_history()), then torch.cuda.memory._dump_snapshot('snapshot.pickle') "
        "(torchreel.memory.dump)."
    ]


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
    sentences = []
    for failure in failures[:FEW]:
        time, step = when(failure.moment)
        free = "" if failure.device_free is None else f"; the device had {bytes_text(failure.device_free)} free"
        unused = failure.reserved - failure.allocated
        sentences.append(
            f"At {time}{f', step {step}' if step else ''}: {bytes_text(failure.bytes)} were asked for"
            f"{f' by {failure.line}' if failure.line else ''}{free}, {bytes_text(failure.allocated)} were allocated "
            f"and {bytes_text(max(unused, 0))} reserved but unused."
        )
    more = len(failures) - FEW
    if more > 0:
        sentences.append(f"And {count_text(more, 'time')} more.")
    return "Out of memory", sentences, []


def holders(report: MemoryReport, limit: int | None) -> Section:
    moment = "the peak" if report.peak is not None else "memory at the end"
    heading = f"Who holds {moment}: {bytes_text(report.held)} in {count_text(report.held_blocks, 'block')}"
    sentences = []
    if report.by != "category":
        parts = [
            f"{row['name'].replace('_', ' ')} {bytes_text(row['bytes'])} ({row['percent']:.0f} %)"
            for row in report.categories.to_pylist()
        ]
        sentences.append(f"By category: {', '.join(parts)}.")
    rows = report.holders.slice(0, limit) if limit else report.holders
    sentences += _missing_origin(report) + _what_to_do(report)
    columns = _holder_columns(rows, report.by) if rows.num_rows else []
    if rows.num_rows < report.holders.num_rows:
        heading += f"; the first {rows.num_rows} of {report.holders.num_rows:,} {_rows_word(report.by)}"
    return heading, sentences, columns


def _rows_word(by: str) -> str:
    return {"stack": "lines", "module": "modules", "op": "ops", "category": "categories"}[by]


def _missing_origin(report: MemoryReport) -> list[str]:
    """Where all blocks are in one group for want of what would tell them apart."""
    if report.by == "stack" and not report.has_stacks and report.held_blocks:
        return ["No stacks were recorded, so lines are not known: record with --stacks, or with context='all'."]
    only = report.holders["name"].to_pylist()[:2]
    if report.by in ("module", "op") and only and all(name.startswith("(") for name in only):
        what = "Modules" if report.by == "module" else "Ops"
        how = "--modules" if report.by == "module" else "stacks='all', whose C++ frames name the op"
        return [f"{what} are not known here: record with {how}."]
    return []


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


def _what_to_do(report: MemoryReport) -> list[str]:
    """What lowers the peak, by what most of it is for."""
    share = {row["name"]: row["percent"] for row in report.categories.to_pylist()}
    at = report.peak.allocated.moment if report.peak is not None else None
    if at is None:
        return []
    lines = []
    if share.get("activation", 0) >= _MOST and not report.has_backward and not report.failures:
        lines.append("No backward pass was seen: if none is to come, torch.inference_mode() would keep no activations.")
    elif share.get("activation", 0) >= _MOST:
        lines.append("Activations are lowered by a smaller batch, torch.utils.checkpoint, or autocast to bfloat16.")
    if share.get("optimizer_state", 0) >= _MOST:
        lines.append(
            "Optimizer state is lowered by an optimizer that keeps less (SGD, Adafactor, 8-bit Adam) or by sharding."
        )
    if share.get("parameter", 0) >= _MOST:
        lines.append("Parameters are lowered by a smaller dtype, quantization, or sharding.")
    if at.phase == "forward" and share.get("gradient", 0) >= _MUCH:
        lines.append(
            "Gradients live through the next forward pass: zero_grad() right after step() frees them before it."
        )
    return lines
