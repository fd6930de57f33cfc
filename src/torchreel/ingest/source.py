"""Where recordings come from: a reel, or other tools' files that become one."""

from __future__ import annotations

import datetime
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from torchreel._version import __version__
from torchreel.errors import NotATraceError, OptionError, ReelExistsError, TorchreelError
from torchreel.ingest.execution_trace.joining import join
from torchreel.ingest.execution_trace.nodes import ExecutionTrace, read_execution_trace
from torchreel.ingest.formats import Format, format_of
from torchreel.ingest.kineto.trace import Trace, read_trace
from torchreel.ingest.snapshot.snapshot import PROCESS, read_snapshot
from torchreel.reel import Reel, load
from torchreel.reel.meta import write_meta
from torchreel.reel.write import write_process

# What is being read, how many of its bytes are, of how many.
Progress = Callable[[str, int, int], None]


def import_snapshot(path: str | os.PathLike[str], output: str | os.PathLike[str], replace: bool = False) -> None:
    """Make a reel of a memory snapshot; with `replace`, in the place of an older reel.

    Nothing is written if the file cannot be used, and an older reel stays until the new one is complete.
    """
    path, output = Path(path), Path(output)
    _check_free(output, replace)
    tables = read_snapshot(path)
    with _new_reel(output, replace) as part:
        write_reel(part, tables, path.name)


def import_traces(
    paths: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    replace: bool = False,
    progress: Progress | None = None,
) -> list[Trace]:
    """Make a reel of traces of torch.profiler, one process of each, and say what was read of them.

    Execution traces among the files are joined to the traces of the same processes. Nothing is written if a file
    cannot be used, and an older reel stays until the new one is complete.
    """
    output = Path(output)
    _check_free(output, replace)
    files = _distinct(paths)
    traces = [path for path, kind in files.items() if kind is Format.TRACE]
    for path, kind in files.items():
        if kind is Format.SNAPSHOT:
            raise NotATraceError(f"{path} is not a trace of torch.profiler: name another file.")
    others = [path for path, kind in files.items() if kind is Format.EXECUTION_TRACE]
    executions = [read_execution_trace(path, _told(progress, path)) for path in others]
    if not traces:
        raise NotATraceError(
            f"{others[0]} is an execution trace, which has no times: import it together with the trace of the same run."
        )
    with _new_reel(output, replace) as part:
        part.mkdir(parents=True)
        return _write_traces(part, traces, executions, progress)


def _distinct(paths: Sequence[str | os.PathLike[str]]) -> dict[Path, Format]:
    """The files and their kinds; one that is named twice would be two processes of one run."""
    files: dict[Path, Format] = {}
    real: set[str] = set()
    for path in map(Path, paths):
        if os.path.realpath(path) in real:
            raise OptionError(f"{path} is named twice: name each file once.")
        real.add(os.path.realpath(path))
        files[path] = format_of(path)
    return files


def _write_traces(
    part: Path, paths: list[Path], executions: list[ExecutionTrace], progress: Progress | None
) -> list[Trace]:
    read: list[Trace] = []
    names: list[str] = []
    for path in paths:
        trace = read_trace(path, _told(progress, path))
        name = free_name(trace.row["name"], names)
        names.append(name)
        trace.rename(name)
        for execution in executions:
            if len(paths) == 1 or execution.pid == trace.row["pid"]:
                trace.joined[execution.path] = join(trace, execution)
        write_process(part / name, trace.tables)
        trace.forget()
        read.append(trace)
    for execution in executions:
        if not any(execution.path in trace.joined for trace in read):
            raise OptionError(
                f"{execution.path} is an execution trace of process {execution.pid}, and no trace given is of that "
                "process: import it with the trace of the same run only."
            )
    sources = [*(trace.source for trace in read), *(execution.source for execution in executions)]
    write_meta(part, _meta(names[0] if len(names) == 1 else None, sources[0] if len(sources) == 1 else sources))
    return read


def _told(progress: Progress | None, path: Path) -> Callable[[int, int], None] | None:
    return None if progress is None else lambda done, total: progress(f"Reading {path.name}", done, total)


def free_name(wanted: str, taken: Sequence[str]) -> str:
    """The name, with a number if another has it."""
    name, number = wanted, 2
    while name in taken:
        name, number = f"{wanted}-{number}", number + 1
    return name


def _check_free(output: Path, replace: bool) -> None:
    if os.path.lexists(output) and not replace:
        raise ReelExistsError(f"{output} already exists and is not overwritten: give another name, or remove it first.")


@contextmanager
def _new_reel(output: Path, replace: bool) -> Iterator[Path]:
    """A directory that becomes the reel when all is written."""
    part = output.with_name(f".{output.name}.{os.getpid()}.part")
    try:
        yield part
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
    write_meta(output, _meta(PROCESS, {"file": source, "kind": Format.SNAPSHOT.value}))


def _meta(root: str | None, source: Any) -> dict[str, Any]:
    return {
        "torchreel": __version__,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "state": "closed",
        "root": root,
        "source": source,
    }


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
