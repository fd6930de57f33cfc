"""The screen of `torchreel memory`: how much, when, who, why, and what to do, for a person."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torchreel.cli import formats
from torchreel.cli.table import Column, console, draw, printable
from torchreel.cli.units import bytes_text, count_text, time_text

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console

    from torchreel.analyze.memory_fragmentation import Fragmentation
    from torchreel.analyze.memory_leaks import Leaks
    from torchreel.analyze.memory_peak import Moment
    from torchreel.analyze.memory_report import Failure, MemoryReport
    from torchreel.analyze.memory_spikes import Spike

_FEW = 3  # rows of what is shown beside the holders, unless more are asked for
_MOST, _MUCH = 50, 10  # percent of the peak
_HEADERS = {"stack": "Line", "module": "Module", "op": "Op", "category": "Category"}

Section = tuple[str, list[str], list[Column]]  # a heading, sentences, a table


def show(source: str, reports: Sequence[MemoryReport], chosen: Sequence[MemoryReport], limit: int | None) -> None:
    """Print it."""
    out = console()
    if not reports:
        for line in _nothing(source):
            out.print(printable(line), soft_wrap=True)
        return
    if len(reports) > 1:
        draw(_overview(reports[: limit or None]), out)
        if limit and limit < len(reports):
            out.print(f"These are {limit} of {len(reports):,}: --limit 0 shows all.")
        out.print()
    for report in chosen:
        for heading, sentences, columns in _sections(source, report, limit):
            _print_section(out, heading, sentences, columns)
    for line in _next(source, reports, chosen):
        out.print(printable(line), soft_wrap=True)


def write_markdown(
    source: str, reports: Sequence[MemoryReport], chosen: Sequence[MemoryReport], limit: int | None
) -> None:
    """The same as headings, sentences and tables."""
    if not reports:
        sys.stdout.write("".join(f"{printable(line)}\n" for line in _nothing(source)))
        return
    if len(reports) > 1:
        formats.write_markdown(_overview(reports[: limit or None]))
        sys.stdout.write("\n")
    for report in chosen:
        for heading, sentences, columns in _sections(source, report, limit):
            sys.stdout.write(f"### {printable(heading)}\n\n")
            if sentences:
                sys.stdout.write("".join(f"{printable(sentence)}\n" for sentence in sentences) + "\n")
            if columns:
                formats.write_markdown(columns)
                sys.stdout.write("\n")


def _print_section(out: Console, heading: str, sentences: list[str], columns: list[Column]) -> None:
    out.print(printable(heading), style="bold")
    for sentence in sentences:
        out.print(printable(sentence))
    if columns:
        draw(columns, out)
    out.print()


def _nothing(source: str) -> list[str]:
    name = shlex.quote(source)
    if Path(source).is_dir():
        return [
            f"No memory was recorded in {source}.",
            "Next: torchreel record --memory --stacks --modules SCRIPT  records every alloc and free of CPU tensors",
        ]
    return [
        f"{source} has no segment and no event: nothing was allocated, or nothing was recorded.",
        *_how_to_record(),
        f"Next: torchreel memory {name}",
    ]


def _how_to_record() -> list[str]:
    return [
        "To record one: torch.cuda.memory._record_memory_history() before the part of interest (for CPU tensors too: "
        "torchreel.memory.record_history()), then torch.cuda.memory._dump_snapshot('snapshot.pickle') "
        "(torchreel.memory.dump)."
    ]


def _overview(reports: Sequence[MemoryReport]) -> list[Column]:
    several = len({report.process for report in reports}) > 1
    columns = [Column("Device", [report.device for report in reports])]
    if several:
        columns.insert(0, Column("Process", [report.process_name for report in reports], keep_end=True))
    peaks = [report.peak for report in reports]
    columns += [
        Column("Allocs", [f"{report.allocs:,}" for report in reports], number=True),
        Column("Peak allocated", [bytes_text(p.allocated.bytes) if p else "" for p in peaks], number=True),
        Column("Peak reserved", [bytes_text(p.reserved.bytes) if p and p.reserved else "" for p in peaks], number=True),
        Column("Allocated at the end", [bytes_text(report.final_allocated) for report in reports], number=True),
        Column("", ["out of memory" if report.failures else "" for report in reports]),
    ]
    return [column for column in columns if any(column.cells)]


def _sections(source: str, report: MemoryReport, limit: int | None) -> list[Section]:
    few = _few(limit)
    leaks = [_leaks(source, report.leaks, few)] if report.leaks is not None else []
    found = report.leaks is not None and report.leaks.verdict == "found"
    return [
        _head(source, report),
        *([_failures(report.failures)] if report.failures else []),
        *(leaks if found else []),  # what to see first
        _holders(report, limit),
        _fragmentation(report, few),
        *([] if found else leaks),
        *([_spikes(report, few)] if report.spikes else []),
    ]


def _few(limit: int | None) -> int | None:
    return None if not limit else max(_FEW, limit // 2) if limit > 10 else min(_FEW, limit)


def _head(source: str, report: MemoryReport) -> Section:
    owner = f" in process {report.process_name}" if report.process else ""
    heading = f"{source}: {report.device}{owner}"
    if report.peak is None:
        return heading, _no_history(report), []
    parts = [count_text(report.allocs, "alloc")]
    if report.duration_ns is not None:
        parts.append(f"in {time_text(report.duration_ns)}")
    words = " ".join(parts) + (f", {_steps(report.steps, report.steps_source)}" if report.steps else "")
    sentences = [f"{words}. Bytes are those that the program asked for."]
    if report.history == "mid-run" and report.older_blocks:
        share = 100 * report.older_bytes / max(report.held, 1)
        sentences.append(
            f"The history begins in the middle of the run: {count_text(report.older_blocks, 'block')} of the peak, "
            f"{bytes_text(report.older_bytes)} or {share:.0f} %, {_are(report.older_blocks)} older than it."
        )
    sentences += _losses(report)
    return heading, sentences, _peak_columns(report)


def _steps(count: int, source: str) -> str:
    return count_text(count, "step") + (f" ({source})" if source else "")


def _are(count: int) -> str:
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
        *_how_to_record(),
        f"In the final state {bytes_text(report.final_allocated)} {_are(1)} allocated in "
        f"{count_text(report.final_blocks, 'block')}.",
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
    first, size, time, step, place = zip(*cells, strict=True)
    columns = [
        Column("", first),
        Column("Bytes", size, number=True),
        Column("At", time, number=True),
        Column("Step", step, number=True),
        Column("Where", place),
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


def _failures(failures: Sequence[Failure]) -> Section:
    sentences = []
    for failure in failures[:_FEW]:
        time, step = when(failure.moment)
        free = "" if failure.device_free is None else f"; the device had {bytes_text(failure.device_free)} free"
        unused = failure.reserved - failure.allocated
        sentences.append(
            f"At {time}{f', step {step}' if step else ''}: {bytes_text(failure.bytes)} were asked for"
            f"{f' by {failure.line}' if failure.line else ''}{free}, {bytes_text(failure.allocated)} were allocated "
            f"and {bytes_text(max(unused, 0))} reserved but unused."
        )
    more = len(failures) - _FEW
    if more > 0:
        sentences.append(f"And {count_text(more, 'time')} more.")
    return "Out of memory", sentences, []


def _holders(report: MemoryReport, limit: int | None) -> Section:
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


def _fragmentation(report: MemoryReport, limit: int | None) -> Section:
    found = report.fragmentation
    if found is None:
        return "Fragmentation", ["None: the system's allocator has no segments that blocks could split."], []
    total = found.total
    free = total.reserved - total.allocated - total.pending
    share = 100 * free / max(total.reserved, 1)
    sentences = [
        f"Of {bytes_text(total.reserved)} reserved in {count_text(total.segments, 'segment')}, {bytes_text(free)} or "
        f"{share:.0f} % is unused: {bytes_text(total.split)} split (between blocks that live), "
        f"{bytes_text(total.cached)} cached (could be returned). The largest free piece is "
        f"{bytes_text(total.largest_free)}; rounding takes {bytes_text(total.rounding)}."
    ]
    if report.peak is not None and report.peak.reserved is not None:
        peak, at = report.peak.reserved.bytes, report.peak.allocated_at_peak_reserved or 0
        sentences.append(f"While {bytes_text(peak)} were reserved, the most, up to {bytes_text(at)} were allocated.")
    sentences += _advice(report, found)
    rows = found.pins.slice(0, limit) if limit else found.pins
    columns = _pin_columns(rows) if found.notable and rows.num_rows else []
    return "Fragmentation at the end", sentences, columns


def _advice(report: MemoryReport, found: Fragmentation) -> list[str]:
    """What the numbers support, and nothing else."""
    on_cpu = report.device == "cpu"
    lines = []
    if found.notable and found.pins.num_rows:
        cost = sum(found.pins["pinned"].to_pylist())
        lines.append(
            f"{count_text(found.pinned_segments, 'segment')} that {_are(found.pinned_segments)} mostly empty "
            f"cannot be returned because of a few blocks; they pin {bytes_text(cost)} (below). Make these blocks "
            "before the large ones, or free them earlier."
        )
    if _expanding_may_help(report):
        lines.append(
            "Expandable segments return free memory page by page: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True may "
            "help, and 'torchreel simulate' tells by how much (below)."
        )
    if found.cached_notable:
        how = "torchreel.memory.empty_cache()" if on_cpu else "torch.cuda.empty_cache()"
        lines.append(f"What is cached is used again by later allocs; {how} returns it to other programs.")
    if found.rounding_notable:
        lines.append("Rounding takes much: sizes just above a multiple of 2 MiB, or roundup_power2_divisions, cost it.")
    if not lines:
        lines.append("That is little: there is nothing to gain here.")
    return lines


def _expanding_may_help(report: MemoryReport) -> bool:
    found = report.fragmentation
    asked = report.settings.get("expandable_segments")
    return found is not None and found.notable and found.fixed and report.device != "cpu" and not asked


def _pin_columns(rows: pa.Table) -> list[Column]:
    values = {name: rows[name].to_pylist() for name in rows.column_names}
    return [
        Column("Pinned", [bytes_text(size) for size in values["pinned"]], number=True),
        Column("Segments", [f"{count:,}" for count in values["segments"]], number=True),
        Column("Blocks", [f"{count:,}" for count in values["blocks"]], number=True),
        Column("Their bytes", [bytes_text(size) for size in values["bytes"]], number=True),
        Column("Line", values["name"], keep_end=True),
    ]


def _leaks(source: str, found: Leaks, limit: int | None) -> Section:
    if found.verdict == "no steps":
        how = "call recorder.step(), or " if Path(source).is_dir() else ""
        how += "put each step into torch.profiler.record_function('step')"
        return "Leaks", [f"Cannot be told, because nothing says where a step ends: {how} while you record."], []
    if found.verdict == "too few steps":
        return "Leaks", [f"Cannot be told from {_steps(found.steps, found.source)}: record six or more."], []
    over = f"{_steps(found.steps, found.source)} after the first two"
    if found.verdict == "none":
        return "Leaks", [f"None: no line has more and more blocks over {over}."], []
    rows = found.growing.slice(0, limit) if limit else found.growing
    total = sum(found.growing["bytes_per_step"].to_pylist())
    sentences = [f"Memory grows by {bytes_text(round(total))} in each step, over {over}."]
    columns = _leak_columns(rows)
    if "activation" in found.growing["category"].to_pylist() or any(found.growing["graph"].to_pylist()):
        sentences.append(
            "They were made with gradients on, so a graph may keep them: that of a loss or an output in a list, or of "
            "a hidden state carried over. Keep loss.item() or x.detach() instead."
        )
    if rows.num_rows < found.growing.num_rows:
        sentences.append(f"There are {found.growing.num_rows - rows.num_rows} more: --limit 0 shows all.")
    sentences.append("The blocks are made by:")
    return "Leaks", sentences, columns


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


def _spikes(report: MemoryReport, limit: int | None) -> Section:
    rows = report.spikes[:limit] if limit else report.spikes
    sentences = []
    if report.without_spikes < report.held:
        lower = bytes_text(report.held - report.without_spikes)
        sentences.append(f"Without spikes the peak would be {bytes_text(report.without_spikes)}, {lower} lower.")
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
    return "Spikes: short-lived blocks above the level around them", sentences, [c for c in columns if any(c.cells)]


def _lasts(spike: Spike) -> str:
    return time_text(spike.duration_ns) if spike.duration_ns is not None else count_text(spike.events, "event")


def _next(source: str, reports: Sequence[MemoryReport], chosen: Sequence[MemoryReport]) -> list[str]:
    """Commands that go deeper from here."""
    name = shlex.quote(source)
    report = chosen[0]
    ideas = []
    others = [other.device for other in reports if other.device != report.device]
    if others and len(chosen) < len(reports):
        ideas.append((f"torchreel memory {name} --device {others[0]}", "another device"))
    relatives = [other.process_name for other in reports if other.process != report.process]
    if relatives and len(chosen) < len(reports):
        ideas.append((f"torchreel memory {name} --process {shlex.quote(relatives[0])}", "another process"))
    if report.by != "category":
        ideas.append((f"torchreel memory {name} --by category", "what it is for"))
    if report.by != "module" and Path(source).is_dir():
        ideas.append((f"torchreel memory {name} --by module", "by nn.Module"))
    if report.by != "stack":
        ideas.append((f"torchreel memory {name} --by stack", "by the line of the source"))
    if report.peak is not None and report.device == "cpu":
        ideas.append((f"torchreel simulate {name}", "what a GPU's allocator would reserve for it"))
    elif report.peak is not None:
        if _expanding_may_help(report):
            ideas.append((f"torchreel simulate {name} --conf expandable_segments:True", "what these would reserve"))
        ideas.append((f"torchreel simulate {name} --sweep", "which settings would need less"))
    width = max(len(line) for line, _ in ideas)
    return [f"{'Next:' if n == 0 else '     '} {line:<{width}}  {what}" for n, (line, what) in enumerate(ideas)]
