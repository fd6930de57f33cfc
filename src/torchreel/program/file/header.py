"""The fixed part of a tape's file: its first line, the header, and an entry for each storage that comes with it.

0   "torchreel tape\\r\\n"                                    16 bytes
16  header                                                   48 bytes, see _HEADER
64  one entry per storage                                    32 bytes each, see _ENTRY
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from torchreel.errors import CorruptTapeError, NewerTapeError, NotATapeError, TruncatedTapeError
from torchreel.program.model import FORMAT

MAGIC = b"torchreel tape\r\n"
ALIGNMENT = 64
PLAIN, ZSTD = 0, 1  # codecs
WITH_DATA = 1  # a flag

_HEADER = struct.Struct("<IHHQQQIIII")
_ENTRY = struct.Struct("<QQQII")
HEADER_BYTES = len(MAGIC) + _HEADER.size
ENTRY_BYTES = _ENTRY.size


class Header(NamedTuple):
    version: int
    codec: int  # of the program
    flags: int
    stored: int  # bytes of the program in the file
    unpacked: int  # and of its msgpack
    file_bytes: int
    storages: int
    program_sum: int  # CRC-32 of the stored program
    entries_sum: int  # of the entries
    own_sum: int = 0  # of all that stands before it


class Entry(NamedTuple):
    """Where the bytes of a storage are."""

    storage: int
    offset: int
    bytes: int
    sum: int
    reserved: int = 0


def pack_header(header: Header) -> bytes:
    """The first bytes of the file, with their checksum at the end."""
    start = MAGIC + _HEADER.pack(*header)[:-4]
    return start + struct.pack("<I", zlib.crc32(start))


def pack_entries(entries: Iterable[Entry]) -> bytes:
    return b"".join(_ENTRY.pack(*entry) for entry in entries)


def read_header(path: Path, start: bytes, size: int) -> Header:
    """The header in the first bytes of a file of this size, or what is wrong with the file."""
    if not start or not start.startswith(MAGIC[: len(start)]):
        what = "it does not begin as one" if start else "it is empty"
        raise NotATapeError(f"{path} is not a tape ({what}): name a file that tape.save() wrote.")
    if len(start) >= len(MAGIC) + 4:  # a later version may have another header
        _check_version(path, struct.unpack_from("<I", start, len(MAGIC))[0])
    if len(start) < HEADER_BYTES:
        raise truncated(path, size)
    header = Header(*_HEADER.unpack_from(start, len(MAGIC)))
    if header.own_sum != zlib.crc32(start[:-4]):
        raise corrupt(path, "its header is not what was written")
    if size < header.file_bytes:
        raise truncated(path, size)
    if size > header.file_bytes:
        raise corrupt(path, f"it has {size} bytes where {header.file_bytes} were written")
    return header


def _check_version(path: Path, version: int) -> None:
    if version > FORMAT:
        raise NewerTapeError(
            f"{path} has format version {version} and this torchreel reads up to {FORMAT}: "
            "upgrade with 'pip install --upgrade torchreel'."
        )
    if version < 1:
        raise corrupt(path, f"it has format version {version}, which never existed")


def read_entries(path: Path, table: bytes, header: Header) -> list[Entry]:
    """The entries, each of which lies within the file and apart from all others."""
    if zlib.crc32(table) != header.entries_sum:
        raise corrupt(path, "its list of storages is not what was written")
    entries = [Entry(*fields) for fields in _ENTRY.iter_unpack(table)]
    end = HEADER_BYTES + len(table) + header.stored
    for entry in sorted(entries, key=lambda entry: entry.offset):
        if entry.offset < end or entry.offset % ALIGNMENT or entry.bytes > header.file_bytes - entry.offset:
            raise corrupt(path, f"the data of storage {entry.storage} lies outside of its place")
        end = entry.offset + entry.bytes
    if len({entry.storage for entry in entries}) != len(entries):
        raise corrupt(path, "it has the data of one storage twice")
    if entries and not header.flags & WITH_DATA:
        raise corrupt(path, "it has data and says that it has none")
    return entries


def corrupt(path: Path, clause: str) -> CorruptTapeError:
    return CorruptTapeError(f"{path} is damaged ({clause}): restore it from a copy, or make the tape again.")


def truncated(path: Path, size: int) -> TruncatedTapeError:
    return TruncatedTapeError(
        f"{path} ends after {size} bytes, before it is complete: copy it again from where it was made."
    )
