"""The further sections of `torchreel memory`: fragmentation, leaks and spikes, with what to do about them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from torchreel.cli.memory.peak import Section, are, steps_text, when
from torchreel.cli.terminal.table import Column
from torchreel.cli.terminal.units import bytes_text, count_text, time_text

if TYPE_CHECKING:
    import pyarrow as pa

    from torchreel.analyze.memory.fragmentation import Fragmentation
    from torchreel.analyze.memory.leaks import Leaks
    from torchreel.analyze.memory.report import MemoryReport
    from torchreel.analyze.memory.spikes import Spike


def fragmentation(report: MemoryReport, limit: int | None) -> Section:
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
            f"{count_text(found.pinned_segments, 'segment')} that {are(found.pinned_segments)} mostly empty "
            f"cannot be returned because of a few blocks; they pin {bytes_text(cost)} (below). Make these blocks "
            "before the large ones, or free them earlier."
        )
    if expanding_may_help(report):
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


def expanding_may_help(report: MemoryReport) -> bool:
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


def leaks(source: str, found: Leaks, limit: int | None) -> Section:
    if found.verdict == "no steps":
        how = "call recorder.step(), or " if Path(source).is_dir() else ""
        how += "put each step into torch.profiler.record_function('step')"
        return "Leaks", [f"Cannot be told, because nothing says where a step ends: {how} while you record."], []
    if found.verdict == "too few steps":
        return "Leaks", [f"Cannot be told from {steps_text(found.steps, found.source)}: record six or more."], []
    over = f"{steps_text(found.steps, found.source)} after the first two"
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


def spikes(report: MemoryReport, limit: int | None) -> Section:
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
