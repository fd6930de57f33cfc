"""`torchreel memory`: how much memory, when, who holds it, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from torchreel.cli.sources import say_left_out, skip_damaged_option
from torchreel.cli.terminal.formats import FORMATS, write_csv, write_json
from torchreel.errors import OptionError

if TYPE_CHECKING:
    from torchreel.analyze.memory.report import MemoryReport

BY = ("stack", "module", "op", "category")
_ROWS = 10


@click.command("memory")
@click.argument("source")
@click.option("--by", type=click.Choice(BY), default="stack", show_default=True, help="What to group blocks by.")
@click.option("--device", metavar="NAME", help="Only this device: cpu, cuda:0 ...  [the one with the greatest peak]")
@click.option("--process", metavar="NAME", help="Only this process of a reel, by its name or number.")
@click.option("--limit", type=click.IntRange(min=0), help="Rows to print, 0 for all.  [10; all for csv and json]")
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", show_default=True, help="How to print.")
@skip_damaged_option
def command(
    source: str,
    by: str,
    device: str | None,
    process: str | None,
    limit: int | None,
    form: str,
    skip_damaged: bool,
) -> None:
    """Show the memory of SOURCE, a reel or a memory snapshot: the peak, who holds it, fragmentation, leaks and spikes.

    A snapshot is a file of torch.cuda.memory._dump_snapshot or torchreel.memory.dump; it is read without running any
    of it. Bytes are those that the program asked for. docs/memory.md says how each number is found.

    \b
    torchreel memory run.reel
        the peak of a run that was recorded with --memory, and the lines whose blocks make it up
    torchreel memory snapshot.pickle --device cuda:1
        one device of a CUDA snapshot; without --device, the one with the greatest peak
    torchreel memory run.reel --by category
        parameters, gradients, optimizer state, activations, inputs and temporaries at the peak
    torchreel memory run.reel --by module --limit 0
        every module that holds a part of the peak
    torchreel memory snapshot.pickle --format json | jq '.devices[0].peak.allocated.bytes'
        for programs: integers in nanoseconds and bytes; these keys stay
    """
    from torchreel.ingest import open_source

    if limit is None and form in ("table", "markdown"):
        limit = _ROWS
    with open_source(source, skip_damaged=skip_damaged) as reel:
        say_left_out(reel)
        from torchreel.analyze.memory.report import memory_reports

        reports = memory_reports(reel, by)
    chosen = _chosen(reports, source, device, process)
    if form == "json":
        write_json({"source": source, "by": by, "devices": [report.as_dict(limit) for report in chosen]})
    elif form == "csv":
        write_csv(["process", "device", *_HOLDERS], _holder_rows(chosen, limit))
    else:
        from torchreel.cli.memory import screen as memory_screen

        draw = memory_screen.write_markdown if form == "markdown" else memory_screen.show
        draw(source, reports, chosen if device or process else chosen[:1], limit)


_HOLDERS = ("name", "bytes", "percent", "blocks", "largest", "categories")


def _holder_rows(reports: list[MemoryReport], limit: int | None) -> list[tuple[Any, ...]]:
    return [
        (report.process_name, report.device, *(row[name] for name in _HOLDERS))
        for report in reports
        for row in (report.holders.slice(0, limit) if limit else report.holders).to_pylist()
    ]


def _chosen(reports: list[MemoryReport], source: str, device: str | None, process: str | None) -> list[MemoryReport]:
    """Those that were asked for, or a sentence that says what there is."""
    chosen = [r for r in reports if process is None or process in (r.process_name, str(r.process))]
    if process is not None and not chosen:
        names = ", ".join(dict.fromkeys(r.process_name for r in reports)) or "none"
        raise OptionError(f"{source} has no process {process!r} with memory: it has {names}.")
    found = [r for r in chosen if device is None or r.device == device or r.device.partition(":")[0] == device]
    if device is not None and not found:
        names = ", ".join(dict.fromkeys(r.device for r in chosen)) or "none"
        raise OptionError(f"{source} has no device {device!r}: it has {names}.")
    return found
