"""A file of a memory snapshot -> plain Python values. It is a pickle or JSON, which the first byte tells."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from torchreel.errors import CorruptSnapshotError, NotASnapshotError, TruncatedSnapshotError, first_line

_JSON_STARTS = b"{[ \t\r\n\xef"  # \xef begins the mark that some editors put before UTF-8
_PICKLE_STARTS = b"\x80(}]"
_OTHER_FILES = {
    b"\x1f\x8b": "compressed with gzip: unpack it with gunzip first",
    b"PK": "a zip archive, as torch.save writes them: dump a snapshot with torch.cuda.memory._dump_snapshot",
    b"\x28\xb5\x2f\xfd": "compressed with zstd: unpack it first",
    b"BZh": "compressed with bzip2: unpack it first",
    b"\xfd7zXZ": "compressed with xz: unpack it first",
}
_DUMP_AGAIN = "copy it again from where it was made, or dump it again"


@dataclass(frozen=True)
class Document:
    """What a file holds, and how many bytes it has."""

    value: object
    size: int


def read_document(path: Path) -> Document:
    """Read the file; nothing in it can execute anything."""
    with _opened(path) as (file, size):
        head = os.pread(file, 8, 0)
        if not head:
            raise NotASnapshotError(f"{path} is empty, not a memory snapshot: dump the snapshot again.")
        for start, hint in _OTHER_FILES.items():
            if head.startswith(start):
                raise NotASnapshotError(f"{path} is not a memory snapshot but {hint}.")
        if head[0] in _JSON_STARTS:
            return Document(_json(path, file, size), size)
        if head[0] not in _PICKLE_STARTS:
            raise NotASnapshotError(
                f"{path} is not a memory snapshot: it is neither a pickle nor JSON. Name a file that "
                "torch.cuda.memory._dump_snapshot or torch.profiler wrote."
            )
        return Document(_pickle(path, file), size)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[int, int]]:
    """The descriptor and the size of a regular file; opening anything else must not wait for a writer."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        raise NotASnapshotError(f"There is no memory snapshot at {path}: check the path.") from None
    try:
        status = os.fstat(file)
        if stat.S_ISDIR(status.st_mode):
            raise NotASnapshotError(f"{path} is a directory, not a memory snapshot: name the file.")
        if not stat.S_ISREG(status.st_mode):
            raise NotASnapshotError(f"{path} is not a regular file: copy what it gives to a file first.")
        yield file, status.st_size
    finally:
        os.close(file)


def _pickle(path: Path, file: int) -> object:
    from torchreel import _decode

    try:
        return _decode.read_pickle(file)
    except _decode.TruncatedPickleError as error:
        raise TruncatedSnapshotError(f"{path} is not complete: {error}. Please {_DUMP_AGAIN}.") from None
    except _decode.RefusedPickleError as error:
        raise NotASnapshotError(
            f"{path} is not a memory snapshot: its pickle has {error}, and a snapshot holds only plain values. "
            "Nothing of it was executed. Name a file that torch.cuda.memory._dump_snapshot wrote."
        ) from None
    except _decode.PickleError as error:
        raise CorruptSnapshotError(f"{path} is damaged, or not a pickle: {error}. Please {_DUMP_AGAIN}.") from None


def _json(path: Path, file: int, size: int) -> object:
    import msgspec

    with os.fdopen(os.dup(file), "rb") as stream:
        data = stream.read(size).removeprefix(b"\xef\xbb\xbf")
    try:
        value: object = msgspec.json.decode(data)
        return value
    except RecursionError:
        raise NotASnapshotError(f"{path} is not a memory snapshot: its JSON is nested too deep for one.") from None
    except ValueError as error:
        if "truncated" in str(error):
            raise TruncatedSnapshotError(f"{path} is JSON without its end: {_DUMP_AGAIN}.") from None
        raise CorruptSnapshotError(f"{path} is not valid JSON ({first_line(error, 200)}): {_DUMP_AGAIN}.") from None
