"""`torchreel import`: another tool's file becomes a reel."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from torchreel._units import bytes_text, count_text
from torchreel.cli.sources import refuse_standard_output
from torchreel.errors import NotASnapshotError

if TYPE_CHECKING:
    from torchreel.reel import Reel


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The reel.  [the file's name with .reel]")
@click.option("--force", is_flag=True, help="Replace the reel if it exists.")
def command(file: Path, output: Path | None, force: bool) -> None:
    """Make a reel of FILE, a memory snapshot that PyTorch 2.0 or later dumped, as a pickle or JSON.

    The file is read by a reader that knows plain values only: whatever it holds, nothing of it is executed.

    \b
    torchreel import snapshot.pickle
        snapshot.reel, of what torch.cuda.memory._dump_snapshot("snapshot.pickle") wrote
    torchreel import snapshot.pickle -o run.reel && torchreel memory run.reel
        what held the memory at its peak
    torchreel import snapshot.json -o run.reel --force
        in the place of an older run.reel
    """
    from torchreel.cli.record import reel_path
    from torchreel.ingest import import_snapshot
    from torchreel.reel import load

    if file.is_dir():
        raise NotASnapshotError(f"{file} is a directory, not a memory snapshot: name the file.")
    refuse_standard_output(output)
    reel = reel_path(output or Path(f"{file.stem or 'snapshot'}.reel"), force)
    with _status(f"Reading {file.name}"):
        import_snapshot(file, reel, replace=force)
    _tell(file, load(reel))


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
