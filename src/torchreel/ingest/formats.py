"""What kind of file one is: its content decides, not its name."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path

import msgspec

from torchreel.errors import NotATraceError
from torchreel.ingest.kineto.unpacking import Unpacking, opened


class Format(Enum):
    """The kinds of files that become a reel, by what a user calls them."""

    SNAPSHOT = "memory snapshot"
    TRACE = "trace"
    EXECUTION_TRACE = "execution trace"


# Of each kind what its text has near the beginning; the first that is found decides.
_SIGNS = (
    (re.compile(rb'"traceEvents"\s*:'), Format.TRACE),
    (re.compile(rb'"(?:device_traces|segments|segment_type)"\s*:'), Format.SNAPSHOT),
    (re.compile(rb'"nodes"\s*:\s*\[|"schema"\s*:\s*"\d'), Format.EXECUTION_TRACE),
    (re.compile(rb'\A\s*\[\s*\{[^{}]*"(?:ph|ts|cat)"\s*:'), Format.TRACE),
)
_EMPTY_LIST = re.compile(rb"\A\s*\[\s*\]\s*\Z")
_JSON = (b"{", b"[")
# What may stand before the first sign: logs, metadata of users.
_FAR = 64 << 20
# It stands there most often.
_FIRST = 64 << 10


def format_of(path: Path) -> Format:
    """The kind of a file; what is no JSON is left to the reader of snapshots, which are pickles."""
    with opened(path) as (file, size):
        text = b""
        for block in Unpacking(file, size, first=_FIRST).blocks():
            text += block
            start = text.removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n")
            if start and not start.startswith(_JSON):
                break
            for pattern, kind in _SIGNS:
                if pattern.search(text):
                    return kind
            if len(text) > _FAR:
                break
        else:
            if not _EMPTY_LIST.match(text) and _is_json(text):
                raise NotATraceError(
                    f"{path} is JSON, but neither a trace of torch.profiler nor a memory snapshot: name another file."
                )
    return Format.SNAPSHOT


def _is_json(text: bytes) -> bool:
    """Whether a text is whole and valid; the reader of snapshots says what is wrong with another."""
    try:
        msgspec.json.decode(text.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    return True
