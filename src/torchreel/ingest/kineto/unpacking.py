"""A file of a trace -> its bytes, unpacked if it is compressed with gzip, block by block."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from isal import isal_zlib

from torchreel.errors import NotATraceError

GZIP = b"\x1f\x8b"
BLOCK = 2 << 20
# A file that unpacks to more than so many times its size is no trace: real ones stay below a quarter of that.
_MOST_PER_BYTE = 200
_ALWAYS_ALLOWED = 256 << 20

Progress = Callable[[int, int], None]


class Unpacking:
    """The bytes of one file. What is known at the end: how many there were, their hash, what is missing."""

    def __init__(self, file: int, size: int, progress: Progress | None = None, first: int | None = None) -> None:
        """`first` is how many bytes the first block has, for who may need no more; the next have twice as many each."""
        self.size = size
        self.unpacked = 0
        self.problem: str | None = None  # why the end is not the end
        self._file = file
        self._hash = hashlib.sha256()
        self._progress = progress
        self._read = 0
        self._block = first or BLOCK

    @property
    def sha256(self) -> str:
        """Of the file as it is, once all blocks have been read."""
        return self._hash.hexdigest()

    def blocks(self) -> Iterator[bytes]:
        """The unpacked bytes. The whole file is read in any case, for its hash."""
        first = self._next()
        blocks = self._inflated(first) if first.startswith(GZIP) else self._plain(first)
        for block in blocks:
            self.unpacked += len(block)
            yield block
            self._block = min(2 * self._block, BLOCK)
        while self._next():
            pass

    def _next(self) -> bytes:
        block = os.read(self._file, self._block)
        self._hash.update(block)
        self._read += len(block)
        if self._progress is not None:
            self._progress(self._read, self.size)
        return block

    def _plain(self, block: bytes) -> Iterator[bytes]:
        while block:
            yield block
            block = self._next()

    def _inflated(self, block: bytes) -> Iterator[bytes]:
        limit = max(_ALWAYS_ALLOWED, self.size * _MOST_PER_BYTE)
        inflater = isal_zlib.decompressobj(wbits=31)
        while block:
            try:
                made = inflater.decompress(block, self._block)
            except isal_zlib.error:  # type: ignore[misc]
                self.problem = "its compression is damaged"
                return
            if made:
                yield made
            if self.unpacked > limit:
                self.problem = f"it unpacks to more than {_MOST_PER_BYTE} times its size"
                return
            block = inflater.unconsumed_tail
            if inflater.eof:
                block = inflater.unused_data or self._next()
                if block and not block.startswith(GZIP[: len(block)]):
                    return  # padding, as tape archives have it
                inflater = isal_zlib.decompressobj(wbits=31)
            elif not block:
                block = self._next()
                if not block:
                    self.problem = "its compressed data ends early"


@contextmanager
def opened(path: Path) -> Iterator[tuple[int, int]]:
    """The descriptor and the size of a regular file; opening anything else must not wait for a writer."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        raise NotATraceError(f"There is no trace at {path}: check the path.") from None
    try:
        status = os.fstat(file)
        if stat.S_ISDIR(status.st_mode):
            raise NotATraceError(f"{path} is a directory, not a trace: name the file.")
        if not stat.S_ISREG(status.st_mode):
            raise NotATraceError(f"{path} is not a regular file: copy what it gives to a file first.")
        yield file, status.st_size
    finally:
        os.close(file)
