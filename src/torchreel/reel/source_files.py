"""Files of source on this machine's disk: their bytes, within limits, and their text.

Paths come from frames, so they may be anything: names of devices, of pipes, of files of any size. Only regular files
are opened, and nothing waits for one.
"""

from __future__ import annotations

import codecs
import hashlib
import io
import os
import re
import stat
import tokenize
from pathlib import Path

MOST_BYTES = 64 << 20  # of a file that is read
MOST_TEXT = 2 << 20  # of a file whose text is kept, or shown

# What sources are written in. Python knows more, some of which take time that grows with the square of the length.
_ENCODINGS = re.compile(r"utf-8|ascii|iso8859-\d+|cp\d+|koi8-\w|euc_\w+|gb\w+|big5\w*|shift_jis\w*")


def content_of(file: str) -> bytes | None:
    """The bytes of a file by its whole path; None if it is none, cannot be read, or is larger than 64 MiB."""
    path = Path(file)
    if not path.is_absolute():  # relative to what, only the program knew
        return None
    try:
        if not _is_acceptable(path.stat()):  # a device may act as soon as it is opened
            return None
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as stream:
            if not _is_acceptable(os.fstat(descriptor)):
                return None
            data = stream.read(MOST_BYTES + 1)
    except (OSError, ValueError):
        return None
    return data if len(data) <= MOST_BYTES else None


def _is_acceptable(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) and status.st_size <= MOST_BYTES


def digest_of(data: bytes) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def text_of(data: bytes) -> str:
    """Python source as text: in the encoding that it names, with what is not in it, and NUL, written as \\xff."""
    try:
        text = data.decode(_encoding(data))
    except (UnicodeDecodeError, LookupError):
        text = data.decode("utf-8", "backslashreplace")
    return text.replace("\0", "\\x00")


def _encoding(data: bytes) -> str:
    """The one that it names, if sources are written in it; else UTF-8, without a byte order mark."""
    try:
        named, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        if _ENCODINGS.fullmatch(codecs.lookup(named).name):
            return named
    except (SyntaxError, LookupError):
        pass
    return "utf-8-sig" if data.startswith(codecs.BOM_UTF8) else "utf-8"
