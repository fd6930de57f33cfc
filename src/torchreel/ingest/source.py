"""Where recordings come from: a reel, or another tool's file that becomes one."""

from __future__ import annotations

import datetime
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from torchreel._version import __version__
from torchreel.errors import OptionError, ReelExistsError, TorchreelError
from torchreel.ingest.snapshot.snapshot import PROCESS, read_snapshot
from torchreel.reel import Reel, load
from torchreel.reel.meta import write_meta
from torchreel.reel.write import write_process


def import_snapshot(path: str | os.PathLike[str], output: str | os.PathLike[str], replace: bool = False) -> None:
    """Make a reel of a memory snapshot; with `replace`, in the place of an older reel.

    Nothing is written if the file cannot be used, and an older reel stays until the new one is complete.
    """
    path, output = Path(path), Path(output)
    if os.path.lexists(output) and not replace:
        raise ReelExistsError(f"{output} already exists and is not overwritten: give another name, or remove it first.")
    tables = read_snapshot(path)
    part = output.with_name(f".{output.name}.{os.getpid()}.part")
    try:
        write_reel(part, tables, path.name)
        if replace and output.is_dir() and not output.is_symlink():
            shutil.rmtree(output)
        part.rename(output)
    except OSError as error:
        raise TorchreelError(
            f"{output} could not be written ({error.strerror or error}): make room, or choose another path."
        ) from None
    finally:
        shutil.rmtree(part, ignore_errors=True)


def write_reel(output: Path, tables: dict[str, pa.Table], source: str) -> None:
    """Write the tables of one snapshot as a reel; `source` is the name of its file."""
    output.mkdir(parents=True)
    write_process(output / PROCESS, tables)
    write_meta(
        output,
        {
            "torchreel": __version__,
            "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "state": "closed",
            "root": PROCESS,
            "source": {"file": source, "kind": "memory snapshot"},
        },
    )


@contextmanager
def open_source(path: str | os.PathLike[str], *, skip_damaged: bool = False) -> Iterator[Reel]:
    """The reel at a path, or for a file of a memory snapshot a reel that is there until the block ends.

    `skip_damaged` is that of torchreel.load, for a reel.
    """
    path = Path(path)
    if path.is_dir():
        yield load(path, skip_damaged=skip_damaged)
        return
    if not path.exists():
        raise OptionError(f"There is no reel and no memory snapshot at {path}: check the path.")
    tables = read_snapshot(path)
    with tempfile.TemporaryDirectory(prefix="torchreel-") as directory:
        reel = Path(directory, f"{path.stem or path.name}.reel")
        write_reel(reel, tables, path.name)
        yield load(reel)
