"""What the questions about memory say, in sentences: those of `torchreel memory`, for every place that shows them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torchreel._units import bytes_text, count_text
from torchreel.analyze.memory.fragmentation import Fragmentation
from torchreel.analyze.memory.leaks import FEW_STEPS, NO_STEPS, NONE, Leaks
from torchreel.analyze.memory.peak import Moment
from torchreel.analyze.memory.report import Failure, MemoryReport

When = Callable[[Moment], tuple[str, str]]  # how a moment's time, and its step, are written

_MOST, _MUCH = 50, 10  # percent of the peak


def of_history(report: MemoryReport) -> list[str]:
    """What is not known: the blocks that are older than the history, and what it lost."""
    sentences = []
    if report.history == "mid-run" and report.older_blocks:
        share = 100 * report.older_bytes / max(report.held, 1)
        sentences.append(
            f"The history begins in the middle of the run: {count_text(report.older_blocks, 'block')} of the peak, "
            f"{bytes_text(report.older_bytes)} or {share:.0f} %, {are(report.older_blocks)} older than it."
        )
    return sentences + _losses(report)


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


def of_no_history(report: MemoryReport) -> list[str]:
    """Where there is a final state only."""
    return [
        "There is no usable history of allocs, only the final state: when the peak was, what led to it, leaks and "
        "spikes cannot be told.",
        *how_to_record(),
        f"In the final state {bytes_text(report.final_allocated)} {are(1)} allocated in "
        f"{count_text(report.final_blocks, 'block')}.",
    ]


def how_to_record() -> list[str]:
    """What to do for a history."""
    return [
        "To record one: torch.cuda.memory._record_memory_history() before the part of interest (for CPU tensors too: "
        "torchreel.memory.record_history()), then torch.cuda.memory._dump_snapshot('snapshot.pickle') "
        "(torchreel.memory.dump)."
    ]


def of_failures(failures: Sequence[Failure], when: When, few: int) -> list[str]:
    """Of allocs for which there was no memory: a sentence for the first ones, and how many more there were."""
    sentences = []
    for failure in failures[:few]:
        time, step = when(failure.moment)
        free = "" if failure.device_free is None else f"; the device had {bytes_text(failure.device_free)} free"
        unused = failure.reserved - failure.allocated
        sentences.append(
            f"At {time}{f', step {step}' if step else ''}: {bytes_text(failure.bytes)} were asked for"
            f"{f' by {failure.line}' if failure.line else ''}{free}, {bytes_text(failure.allocated)} were allocated "
            f"and {bytes_text(max(unused, 0))} reserved but unused."
        )
    more = len(failures) - few
    if more > 0:
        sentences.append(f"And {count_text(more, 'time')} more.")
    return sentences


def of_holders(report: MemoryReport) -> list[str]:
    """The categories, what is not known of the holders, and what would lower the peak."""
    sentences = []
    if report.by != "category":
        parts = [
            f"{row['name'].replace('_', ' ')} {bytes_text(row['bytes'])} ({row['percent']:.0f} %)"
            for row in report.categories.to_pylist()
        ]
        sentences.append(f"By category: {', '.join(parts)}.")
    return sentences + _missing_origin(report) + _what_to_do(report)


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


def of_fragmentation(report: MemoryReport) -> list[str]:
    """How much of the reserved memory is unused at the end, why, and what the numbers support doing."""
    found = report.fragmentation
    if found is None:
        return ["None: the system's allocator has no segments that blocks could split."]
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
    return sentences + _advice(report, found)


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
    """Whether enough is split in segments that cannot grow."""
    found = report.fragmentation
    asked = report.settings.get("expandable_segments")
    return found is not None and found.notable and found.fixed and report.device != "cpu" and not asked


def of_leaks(found: Leaks, is_reel: bool) -> list[str]:
    """Whether memory grows, over which steps, or why that cannot be told."""
    if found.verdict == NO_STEPS:
        how = "call recorder.step(), or " if is_reel else ""
        how += "put each step into torch.profiler.record_function('step')"
        return [f"Cannot be told, because nothing says where a step ends: {how} while you record."]
    if found.verdict == FEW_STEPS:
        return [f"Cannot be told from {steps_text(found.steps, found.source)}: record six or more."]
    over = f"{steps_text(found.steps, found.source)} after the first two"
    if found.verdict == NONE:
        return [f"None: no line has more and more blocks over {over}."]
    total = sum(found.growing["bytes_per_step"].to_pylist())
    sentences = [f"Memory grows by {bytes_text(round(total))} in each step, over {over}."]
    if "activation" in found.growing["category"].to_pylist() or any(found.growing["graph"].to_pylist()):
        sentences.append(
            "They were made with gradients on, so a graph may keep them: that of a loss or an output in a list, or of "
            "a hidden state carried over. Keep loss.item() or x.detach() instead."
        )
    return sentences


def of_spikes(report: MemoryReport) -> list[str]:
    """What the peak would be without them."""
    if report.without_spikes >= report.held:
        return []
    lower = bytes_text(report.held - report.without_spikes)
    return [f"Without spikes the peak would be {bytes_text(report.without_spikes)}, {lower} lower."]


def steps_text(count: int, source: str) -> str:
    """How many, and what ends each of them."""
    return count_text(count, "step") + (f" ({source})" if source else "")


def are(count: int) -> str:
    return "is" if count == 1 else "are"
