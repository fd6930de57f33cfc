"""The spool: what a process streams to disk while it records, and its way into tables.

A process appends to `<process>/spool/`; at the end that becomes Parquet and is removed. While it is
there it is the truth, whatever else the directory holds: a conversion that was cut short is simply
done again. The bytes are described in native/base/spool_format.h; they are decoded by `_decode`, which needs no torch.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from torchreel.errors import CorruptReelError, NotAReelError, ReelError, UnwrittenReelError, first_line
from torchreel.reel.tables import FRAMES, INPUTS, OPS, PROCESSES, SOURCES, TABLES
from torchreel.reel.write import ProcessWriter, conform

if TYPE_CHECKING:
    from torchreel._decode import Spool

DIRECTORY = "spool"

# What a process says about itself beside the columns of `processes`: the directory of its program.
PROGRAM_DIRECTORY = "program_directory"

# Given the ops of a batch and the table of inputs so far, the ops with their flops.
FlopCounter = Callable[[pa.Table, pa.Table], pa.Table]
# Given the files that frames name and the directory of the program, if it is known, the table of sources.
SourceReader = Callable[[Iterable[str], str | None], pa.Table]


@dataclass(frozen=True)
class Additions:
    """What is added to the tables of a spool when they are written."""

    flops: FlopCounter | None = None
    sources: SourceReader | None = None
    finish: Callable[[Path], None] | None = None
    """Called with the directory of the process when its tables are there, and the spool still is."""


_NOTHING = Additions()


# Bytes of the head of the events, which is written anew now and then; all else is only added to.
_HEAD = 96


def exists(process: Path) -> bool:
    return (process / DIRECTORY).is_dir()


class Extent:
    """How far a spool went at one moment; with `keep`, its files stay open and can be read when they are removed."""

    def __init__(self, process: Path, keep: bool = True) -> None:
        self._process = process
        self._head = b""
        self.sizes: dict[str, int] = {}
        self._files: dict[str, int] = {}
        weakref.finalize(self, _close_all, self._files)
        # The head first, then the events, then the definitions: what events name was defined before they were written.
        for name in ("events", "definitions"):
            try:
                file = self._files[name] = os.open(process / DIRECTORY / name, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue  # reading says so, if it comes to that
            if name == "events":
                self._head = os.pread(file, _HEAD, 0)
            self.sizes[name] = os.fstat(file).st_size
        if not keep:
            _close_all(self._files)

    def decoder(self) -> Spool:
        """A decoder of the spool as it was then."""
        from torchreel import _decode

        opened = self if self._files else Extent(self._process)
        files = opened._files
        try:
            for name in ("definitions", "events"):
                if name not in files:
                    raise _missing(self._process, name, name in self.sizes)
            return _decode.Spool(
                definitions=files["definitions"],
                events=files["events"],
                definitions_size=self.sizes["definitions"],
                events_size=self.sizes["events"],
                head=self._head,
            )
        except _decode.SpoolError as error:
            raise _unreadable(self._process, error) from None


class GrowingSpool:
    """A spool that is read on while it grows: what was decoded stays decoded. Calls that are open are not there yet."""

    def __init__(self, process: Path) -> None:
        self._process = process
        self._lock = threading.Lock()
        self._begin(Extent(process))

    def _begin(self, extent: Extent) -> None:
        self._extent = extent
        self._decoder = extent.decoder()
        self._rows: dict[str, list[pa.Table]] = {name: [] for name in TABLES}
        self._read()

    def _read(self) -> None:
        from torchreel import _decode

        try:
            for name, columns in self._decoder.next_settled():
                self._rows[name].append(conform(TABLES[name], pa.record_batch(columns)))
        except _decode.SpoolError as error:
            raise _unreadable(self._process, error) from None

    def advance(self) -> bool:
        """Read what is new; false if nothing is."""
        from torchreel import _decode

        now = Extent(self._process, keep=False)
        with self._lock:
            if now.sizes == self._extent.sizes or now.sizes.keys() != self._extent.sizes.keys():
                return False
            try:
                grown = self._decoder.grow(now.sizes["definitions"], now.sizes["events"])
            except _decode.SpoolError as error:
                raise _unreadable(self._process, error) from None
            if grown:
                self._extent.sizes.update(now.sizes)
                self._read()
            else:
                self._begin(Extent(self._process))
            return True

    def batches(self, name: str) -> list[pa.Table]:
        """The rows of a table that were decoded so far, in the parts in which they came."""
        return [table for table in self._rows[name] if table.num_rows]

    def rows(self) -> dict[str, list[pa.Table]]:
        """The same, of all tables, as it is now."""
        with self._lock:
            return {name: list(parts) for name, parts in self._rows.items()}

    def tables(self, rows: dict[str, list[pa.Table]]) -> dict[str, pa.Table]:
        """All tables, with these rows. What they refer to, stacks and the like, may be more than they need."""
        found = {name: list(parts) for name, parts in rows.items()}
        with self._lock:
            for name, columns in self._decoder.finish().items():
                found[name].append(conform(TABLES[name], pa.record_batch(columns)))
            found[PROCESSES.name].append(_process_table(self._decoder, self._process.name, complete=False))
        return {
            name: pa.concat_tables(parts) if parts else TABLES[name].schema.empty_table()
            for name, parts in found.items()
        }


def _close_all(files: dict[str, int]) -> None:
    while files:
        os.close(files.popitem()[1])


def _missing(process: Path, name: str, was_there: bool) -> ReelError:
    if was_there:
        return NotAReelError(f"{process} was closed, or removed, since the reel was opened: open the reel again.")
    return _unreadable(process, f"it has no {name}")


def _open(process: Path) -> Spool:
    return Extent(process).decoder()


def _unreadable(process: Path, error: Exception | str) -> CorruptReelError:
    return CorruptReelError(f"{process / DIRECTORY} cannot be read: {error}.")


def _said(decoder: Spool) -> dict[str, Any]:
    """What the process said about itself; nothing, if that makes no sense."""
    try:
        said = json.loads(decoder.process)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def _process_table(decoder: Spool, name: str, complete: bool) -> pa.Table:
    """The one row of `processes`."""
    row: dict[str, Any] = {
        **{key: _valid(value) for key, value in _said(decoder).items()},
        "name": name,
        "start_ns": decoder.start_ns,
        "end_ns": decoder.end_ns,
        "complete": complete,
        "lost_events": decoder.lost_events,
        "node": decoder.node if decoder.node >= 0 else None,
    }
    return process_row(row, name)


def process_row(row: dict[str, Any], name: str) -> pa.Table:
    """A table `processes` of one row."""
    try:
        return pa.Table.from_pylist([{key: row.get(key) for key in PROCESSES.names}], schema=PROCESSES.schema)
    except (pa.ArrowException, OverflowError, TypeError):
        raise CorruptReelError(f"What the process {name} says about itself makes no sense: {row}.") from None


def _valid(value: Any) -> Any:
    """A text with what is not Unicode, such as a byte of an argument that is not UTF-8, written as \\xff."""
    if not isinstance(value, str):
        return value
    try:
        text = os.fsencode(value).decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:
        text = value.encode("utf-8", "backslashreplace").decode()
    return text.replace("\0", "\\x00")


def _batches(decoder: Spool, process: Path) -> Iterator[tuple[str, pa.Table]]:
    """All rows of all tables, as they are decoded."""
    from torchreel import _decode

    try:
        while (batch := decoder.next()) is not None:
            for name, columns in batch.items():
                yield name, conform(TABLES[name], pa.record_batch(columns))
        for name, columns in decoder.finish().items():
            yield name, conform(TABLES[name], pa.record_batch(columns))
    except _decode.SpoolError as error:
        raise _unreadable(process, error) from None


def read(process: Path, extent: Extent | None = None) -> dict[str, pa.Table]:
    """Decode a spool into tables, in memory: all that is there, or what was there at the moment of the extent."""
    decoder = (extent or Extent(process)).decoder()
    batches: dict[str, list[pa.Table]] = {name: [] for name in TABLES}
    for name, table in _batches(decoder, process):
        batches[name].append(table)
    batches[PROCESSES.name].append(_process_table(decoder, process.name, decoder.closed))
    return {
        name: pa.concat_tables(parts).unify_dictionaries() if parts else TABLES[name].schema.empty_table()
        for name, parts in batches.items()
    }


def convert(process: Path, additions: Additions = _NOTHING) -> None:
    """Turn a spool into Parquet files, batch by batch, and remove it when they are on disk.

    Where that fails the spool stays, and the reel is read from it.
    """
    decoder = _open(process)
    try:
        with ProcessWriter(process) as writer:
            _write(writer, decoder, process, additions)
            writer.write(PROCESSES.name, _process_table(decoder, process.name, decoder.closed))
        if additions.finish is not None:
            additions.finish(process)
    except OSError as error:
        raise UnwrittenReelError(
            f"{process} holds the recording as it was streamed to disk, and no Parquet files, since these cannot be "
            f"written: {error.strerror or first_line(error)}. The reel can be read as it is; make room on the disk "
            f"before you record again."
        ) from None
    done = process / f".{DIRECTORY}"
    (process / DIRECTORY).rename(done)
    shutil.rmtree(done)


def convert_part(
    process: Path,
    target: Path,
    windows: list[tuple[int, int]],
    steps: list[tuple[int, int]],
    additions: Additions = _NOTHING,
) -> None:
    """Write what began within these windows, spans of ticks, of a spool that goes on, as a process of another reel."""
    decoder = _open(process)
    decoder.restrict_to(windows, steps)
    try:
        with ProcessWriter(target) as writer:
            _write(writer, decoder, process, additions)
            writer.write(PROCESSES.name, _process_table(decoder, target.name, complete=True))
    except OSError as error:
        raise UnwrittenReelError(
            f"{target} cannot be written: {error.strerror or first_line(error)}. Make room on the disk; what was "
            f"recorded is in {process.parent}."
        ) from None


def _write(writer: ProcessWriter, decoder: Spool, process: Path, additions: Additions) -> None:
    files: set[str] = set()
    for name, table in _batches(decoder, process):
        if name == OPS.name and additions.flops is not None:
            table = additions.flops(table, conform(INPUTS, pa.record_batch(decoder.inputs())))
        elif name == FRAMES.name:
            files.update(file for file in table.column("file").unique().to_pylist() if file is not None)
        writer.write(name, table)
    if files and additions.sources is not None:
        directory = _said(decoder).get(PROGRAM_DIRECTORY)
        writer.write(SOURCES.name, additions.sources(files, directory if isinstance(directory, str) else None))
