"""The screen of `torchreel memory`: how much, when, who, why, and what to do, for a person."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torchreel._units import bytes_text
from torchreel.analyze.memory.sentences import expanding_may_help, how_to_record
from torchreel.cli.memory.findings import fragmentation, leaks, spikes
from torchreel.cli.memory.peak import FEW, Section, failures, head, holders
from torchreel.cli.terminal import formats
from torchreel.cli.terminal.table import Column, console, draw, printable

if TYPE_CHECKING:
    from rich.console import Console

    from torchreel.analyze.memory.report import MemoryReport


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
        *how_to_record(),
        f"Next: torchreel memory {name}",
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
    growth = [leaks(source, report.leaks, few)] if report.leaks is not None else []
    found = report.leaks is not None and report.leaks.verdict == "found"
    return [
        head(source, report),
        *([failures(report.failures)] if report.failures else []),
        *(growth if found else []),  # what to see first
        holders(report, limit),
        fragmentation(report, few),
        *([] if found else growth),
        *([spikes(report, few)] if report.spikes else []),
    ]


def _few(limit: int | None) -> int | None:
    return None if not limit else max(FEW, limit // 2) if limit > 10 else min(FEW, limit)


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
        if expanding_may_help(report):
            ideas.append((f"torchreel simulate {name} --conf expandable_segments:True", "what these would reserve"))
        ideas.append((f"torchreel simulate {name} --sweep", "which settings would need less"))
    width = max(len(line) for line, _ in ideas)
    return [f"{'Next:' if n == 0 else '     '} {line:<{width}}  {what}" for n, (line, what) in enumerate(ideas)]
