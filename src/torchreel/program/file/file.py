"""A program on disk, with or without the data of the storages that it began with. See docs/tape-format.md.

The header and the entries of storages (header.py), then the program (packing.py), then the bytes of
each storage, at multiples of 64. Reading executes nothing, believes nothing, and takes memory in proportion to the
size of the file.
"""

from __future__ import annotations

import mmap
import os
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from torchreel.errors import NotATapeError, OptionError, TapeError
from torchreel.program.file.header import (
    ALIGNMENT,
    ENTRY_BYTES,
    HEADER_BYTES,
    WITH_DATA,
    Entry,
    Header,
    corrupt,
    pack_entries,
    pack_header,
    read_entries,
    read_header,
    truncated,
)
from torchreel.program.file.packing import decode, encode, pack, unpack
from torchreel.program.model import FORMAT, Program
from torchreel.program.validate import NonsenseError, check


class StorageData(Mapping[int, memoryview]):
    """The bytes of each storage, mapped from the file; their checksum is looked at when they are asked for."""

    def __init__(self, path: Path, file: mmap.mmap, entries: Iterable[Entry]) -> None:
        self._path = path
        self._view = memoryview(file)
        self._entries = {entry.storage: entry for entry in entries}

    def __getitem__(self, storage: int) -> memoryview:
        entry = self._entries[storage]
        content = self._view[entry.offset : entry.offset + entry.bytes]
        if zlib.crc32(content) != entry.sum:
            raise corrupt(self._path, f"the data of storage {storage} is not what was written")
        return content

    def __iter__(self) -> Iterator[int]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def sizes(self) -> dict[int, int]:
        """The bytes of each storage."""
        return {entry.storage: entry.bytes for entry in self._entries.values()}


@dataclass(frozen=True)
class TapeFile:
    program: Program
    data: StorageData | None  # by storage; None in a file that was written without
    format: int  # that the file was written in

    @property
    def complete(self) -> bool:
        """Whether all is here that a replay begins with."""
        constants = self.program.constants
        stored = set(self.data or ())
        return all(
            slot.role == "made" or slot.is_number or index in constants or slot.storage in stored
            for index, slot in enumerate(self.program.slots)
        )


def write_tape(
    path: str | os.PathLike[str], program: Program, data: Mapping[int, memoryview | bytes] | None = None
) -> None:
    """Write the program, and with `data` the bytes of storages by their id (Slot.storage).

    The file appears under its name when it is complete: an error leaves what was there before.
    """
    path = Path(path)
    contents = {storage: memoryview(content).cast("B") for storage, content in (data or {}).items()}
    try:
        check(program, {storage: content.nbytes for storage, content in contents.items()})
    except NonsenseError as error:
        raise TapeError(
            f"The tape cannot be saved as {path} because {error}: please report this fault of torchreel."
        ) from None
    try:
        _replace(path, _pieces(encode(path, program), contents, WITH_DATA if data is not None else 0))
    except OSError as error:
        raise TapeError(
            f"{path} could not be written ({error.strerror or error}): make room, or choose another path."
        ) from error


def _pieces(program: bytes, contents: Mapping[int, memoryview], flags: int) -> Iterator[bytes | memoryview]:
    """What the file holds, piece after piece."""
    codec, stored = pack(program)
    entries = []
    end = HEADER_BYTES + len(contents) * ENTRY_BYTES + len(stored)
    for storage, content in contents.items():
        offset = -(-end // ALIGNMENT) * ALIGNMENT
        entries.append(Entry(storage, offset, content.nbytes, zlib.crc32(content)))
        end = offset + content.nbytes
    table = pack_entries(entries)
    sums = zlib.crc32(stored), zlib.crc32(table)
    yield pack_header(Header(FORMAT, codec, flags, len(stored), len(program), end, len(entries), *sums))
    yield table
    yield stored
    end = HEADER_BYTES + len(table) + len(stored)
    for entry, content in zip(entries, contents.values(), strict=True):
        yield bytes(entry.offset - end)
        yield content
        end = entry.offset + entry.bytes


def _replace(path: Path, pieces: Iterable[bytes | memoryview]) -> None:
    if "\0" in str(path) or not path.name or (path.exists() and not path.is_file()):
        raise OptionError(f"{str(path)!r} is not a file: name a file to save the tape in.")
    if not path.parent.is_dir():
        raise OptionError(f"{path} cannot be written because there is no directory {path.parent}: make it first.")
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.part")
    try:
        with temporary.open("wb") as file:
            for piece in pieces:
                file.write(piece)
        temporary.replace(path)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def read_tape(path: str | os.PathLike[str]) -> TapeFile:
    """Read a tape. The data stays on disk until it is asked for; what makes no sense is refused with a sentence."""
    path = Path(path)
    try:
        if path.exists() and not path.is_file():  # a pipe would keep us waiting
            raise NotATapeError(f"{path} is not a file: name a file that tape.save() wrote.")
        with path.open("rb") as file:
            return _read(path, file)
    except FileNotFoundError:
        raise NotATapeError(
            f"There is no tape at {path}: check the path, or make one with torchreel.trace(...).save(path)."
        ) from None
    except (OSError, ValueError) as error:  # a ValueError is of a path that no system takes
        reason = getattr(error, "strerror", None) or error
        raise NotATapeError(f"{str(path)!r} cannot be read ({reason}): check the path and who may read it.") from None


def _read(path: Path, file: BinaryIO) -> TapeFile:
    header = read_header(path, file.read(HEADER_BYTES), os.fstat(file.fileno()).st_size)
    entries = read_entries(path, _read_part(path, file, header.storages * ENTRY_BYTES, header), header)
    stored = _read_part(path, file, header.stored, header)
    if zlib.crc32(stored) != header.program_sum:
        raise corrupt(path, "its program is not what was written")
    program = decode(path, unpack(path, header.codec, stored, header.unpacked), header.version)
    data = None
    if header.flags & WITH_DATA:
        data = StorageData(path, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY), entries)
    try:
        check(program, data.sizes() if data is not None else None)
    except NonsenseError as error:
        raise corrupt(path, str(error)) from None
    return TapeFile(program, data, header.version)


def _read_part(path: Path, file: BinaryIO, count: int, header: Header) -> bytes:
    if count > header.file_bytes:  # which is the size of the file: no more is ever asked of memory
        raise corrupt(path, f"a part of {count} bytes cannot be in a file of {header.file_bytes}")
    content = file.read(count)
    if len(content) < count:
        raise truncated(path, file.tell())
    return content
