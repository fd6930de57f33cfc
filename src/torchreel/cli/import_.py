"""`torchreel import`: other tools' files become a reel."""

from __future__ import annotations

import re
import sys
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchreel._units import bytes_text, count_text
from torchreel.cli.sources import refuse_standard_output
from torchreel.errors import NotASnapshotError, OptionError

if TYPE_CHECKING:
    from torchreel.ingest.kineto.trace import Trace
    from torchreel.reel import Reel

# What a trace's rows are called, by table.
_ROWS = {
    "ops": "call",
    "kernels": "device activity",
    "device_ranges": "range of a device",
    "syncs": "synchronisation",
    "allocs": "memory event",
    "marks": "mark",
    "flows": "end of an arrow",
    "samples": "sample of a counter",
    "kernel_counters": "hardware counter",
}


@click.command("import")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The reel.  [the file's name with .reel]")
@click.option("--force", is_flag=True, help="Replace the reel if it exists.")
def command(files: tuple[Path, ...], output: Path | None, force: bool) -> None:
    """Make a reel of FILE: a trace of torch.profiler, or a memory snapshot. What it holds tells which.

    Traces are JSON, or JSON compressed with gzip, of PyTorch 1.8 and later, of any device; give the files of all ranks
    of a job for one reel. A file that ends early, or is damaged in places, is read as far as it can be. An execution
    trace of the same run adds arguments and results of ops.

    Memory snapshots are those that PyTorch 2.0 or later dumped, as a pickle or JSON. They are read by a reader that
    knows plain values only: whatever a file holds, nothing of it is executed.

    \b
    torchreel import trace.json.gz -o gpu.reel && torchreel report gpu.reel
        what prof.export_chrome_trace("trace.json.gz") wrote
    torchreel import rank0.json.gz rank1.json.gz -o job.reel
        ranks of a job, a process of the reel for each
    torchreel import trace.json.gz execution_trace.json -o gpu.reel
        with what an ExecutionTraceObserver wrote in the same run
    torchreel import snapshot.pickle
        snapshot.reel, of what torch.cuda.memory._dump_snapshot("snapshot.pickle") wrote
    torchreel import snapshot.pickle -o run.reel && torchreel memory run.reel
        what held the memory at its peak
    torchreel import snapshot.json -o run.reel --force
        in the place of an older run.reel
    """
    from torchreel.cli.record import reel_path
    from torchreel.ingest import Format, format_of

    refuse_standard_output(output)
    for file in files:
        if file.is_dir():
            raise NotASnapshotError(f"{file} is a directory, not a trace or a memory snapshot: name the file.")
        if not file.exists():
            raise NotASnapshotError(f"There is no file at {file}: check the path.")
    reel = reel_path(output or Path(f"{_stem(files[0])}.reel"), force)
    formats = [format_of(file) for file in files]
    if Format.SNAPSHOT not in formats:
        _import_traces(files, reel, force)
        return
    if len(files) > 1:
        snapshot = files[formats.index(Format.SNAPSHOT)]
        raise OptionError(f"{snapshot} is a memory snapshot, which becomes a reel of its own: import it alone.")
    _import_snapshot(files[0], reel, force)


def _stem(file: Path) -> str:
    return (
        re.sub(r"(\.pt)?(\.trace)?\.json(\.gz)?$", "", file.name) if ".json" in file.name else file.stem or "snapshot"
    )


def _import_snapshot(file: Path, reel: Path, force: bool) -> None:
    from torchreel.ingest import import_snapshot
    from torchreel.reel import load

    with _status(f"Reading {file.name}"):
        import_snapshot(file, reel, replace=force)
    _tell(file, load(reel))


def _import_traces(files: tuple[Path, ...], reel: Path, force: bool) -> None:
    from torchreel.cli.terminal.progress import stages
    from torchreel.ingest import import_traces

    with stages() as show:
        traces = import_traces(files, reel, replace=force, progress=show)
    for trace in traces:
        _tell_trace(trace)
    for rank, count in Counter(trace.row["rank"] for trace in traces).items():
        if rank is not None and count > 1:
            click.echo(f"Warning: {count} files are of rank {rank}: answers about ranks take each as a rank.", err=True)
    size = sum(path.stat().st_size for path in reel.rglob("*") if path.is_file())
    click.echo(f"Wrote {reel} ({bytes_text(size)}).")
    click.echo("")
    following = [("report", "where the time went"), ("view", "the same as a timeline")]
    if any(trace.tables["kernels"].num_rows for trace in traces):
        following.insert(0, ("gpu", "what the devices did"))
    for number, (name, about) in enumerate(following):
        click.echo(f"{'      ' if number else 'Next: '}torchreel {name:6} {reel}    {about}")


def _tell_trace(trace: Trace) -> None:
    """What was read of a file, what was left out, and what is lost."""
    from torchreel.cli.terminal.table import printable

    counts = {name: trace.tables[name].num_rows for name in _ROWS if name in trace.tables}
    parts = [_counted(count, _ROWS[name]) for name, count in counts.items() if count]
    rank, world_size = trace.row["rank"], trace.row["world_size"]
    where = "" if rank is None else f", of rank {rank}" + ("" if world_size is None else f" of {world_size}")
    said = [f"Read {trace.path}: {count_text(trace.events, 'event')}{where}: {', '.join(parts) or 'none of a run'}."]
    if trace.left_out.total():
        reasons = ", ".join(_reason(count, reason) for reason, count in trace.left_out.items() if count)
        said.append(f"Not in the reel: {reasons}.")
    said += [f"Read {path}: arguments and results of {count_text(n, 'call')}." for path, n in trace.joined.items() if n]
    for line in said:
        click.echo(printable(line))
    for warning in trace.warnings():
        click.echo(printable(f"Warning: {warning}"), err=True)


def _reason(count: int, reason: str) -> str:
    first, _, rest = reason.partition(" ")
    return f"1 {first.removesuffix('s')} {rest}" if count == 1 else f"{count:,} {reason}"


def _counted(count: int, noun: str) -> str:
    if count == 1:
        return f"1 {noun}"
    head, of, tail = noun.partition(" of ")
    head = head.removesuffix("y") + "ies" if head.endswith("y") else f"{head}s"
    return f"{count:,} {head}{of}{tail}"


def _status(text: str) -> AbstractContextManager[Any]:
    """A sign of life on a terminal; nothing elsewhere."""
    if not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console

    return Console(file=sys.stderr).status(text)


def _tell(file: Path, reel: Reel) -> None:
    """What was read, what can be asked of it, and what to run next."""
    counts = {name: reel.table(name, []).num_rows for name in ("allocs", "segments", "blocks", "annotations")}
    devices = reel.table("devices", ["device"])["device"].to_pylist()
    parts = [
        count_text(counts["allocs"], "event"),
        count_text(counts["segments"], "segment"),
        count_text(counts["blocks"], "block"),
        *([count_text(counts["annotations"], "annotation")] if counts["annotations"] else []),
    ]
    version = reel.process_rows()[0]["torch_version"]
    size = sum(path.stat().st_size for path in reel.path.rglob("*") if path.is_file())
    click.echo(
        f"Read {file}: {', '.join(parts)} of {_names(devices)}, "
        f"{f'by torch {version}' if version else 'by a torch that it does not name'}."
    )
    usable = "alloc" in reel.table("allocs", ["action"])["action"].unique().to_pylist()
    if not usable:
        switch = "torchreel.memory.record_history" if devices == ["cpu"] else "torch.cuda.memory._record_memory_history"
        click.echo(
            f"It has no usable history, only the state at its end: for one, call {switch}() before the code of "
            "interest, and dump after it."
        )
    click.echo(f"Wrote {reel.path} ({bytes_text(size)}).")
    click.echo("")
    click.echo(f"Next: torchreel memory {reel.path}      what holds the memory")
    if usable:
        click.echo(f"      torchreel simulate {reel.path}    what other allocator settings would do")


def _names(devices: list[str]) -> str:
    if len(devices) <= 4:
        return ", ".join(devices) if devices else "no device"
    return f"{', '.join(devices[:4])} and {len(devices) - 4} more"
