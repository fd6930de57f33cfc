"""The source of a file that frames of a reel name: as it was recorded, else as it is on this machine, if that is the
same.

Nothing else of the disk is ever read: the file must be named by a frame, be a regular Python file, also where a link
leads to it, and have at most 2 MiB.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchreel.analyze.connection import opened
from torchreel.analyze.source.states import CHANGED, MISSING, SAME, state_of
from torchreel.errors import OptionError
from torchreel.reel import Reel
from torchreel.reel.source_files import MOST_TEXT, content_of, text_of

_ONLY_LINES = "line numbers only"
_RECORDED = "this is the text that was recorded"

_NAMED = "SELECT count(*) FROM frames WHERE file = $1 AND ($2 IS NULL OR process = $2)"
# Those with a text first.
_ROWS = f"""
    SELECT process, bytes, sha256, CASE WHEN length(text) <= {MOST_TEXT} THEN text END AS text,
        (SELECT count(DISTINCT sha256) FROM sources WHERE path = $1 AND ($2 IS NULL OR process = $2)) AS versions
    FROM sources WHERE path = $1 AND ($2 IS NULL OR process = $2)
    ORDER BY sources.text IS NULL, process LIMIT 1"""


@dataclass(frozen=True)
class _Recorded:
    """What the reel has of a file: nothing, or its hash, or its text as well."""

    process: int | None = None
    bytes: int | None = None
    sha256: str | None = None
    text: str | None = None
    versions: int = 0


def source_of_file(reel: Reel, file: str, process: int | None = None) -> dict[str, Any]:
    """The source of a file, as one process ran it, or the first that has it.

    `text` is null where there is none to show; `origin` says whether it is the recording's or the disk's. `state` is
    the file's on this machine, compared with the recording: same, changed, missing, or null if it cannot be compared.
    `why` is the sentence to show with it, if any.
    """
    with opened(reel, ("frames", "sources")) as connection:
        if not connection.execute(_NAMED, [file, process]).fetchall()[0][0]:
            raise OptionError("No frame of this reel is in that file.")
        rows = connection.execute(_ROWS, [file, process]).fetchall()
    recorded = _Recorded(*rows[0]) if rows else _Recorded()
    shown = _shown(file, recorded)
    if recorded.versions > 1:
        others = f"processes ran different versions of this file: here is that of process {recorded.process}"
        shown["why"] = f"{others}; {shown['why']}" if shown["why"] else others
    known = {"process": process if recorded.process is None else recorded.process}
    return {"file": file, **known, "bytes": recorded.bytes, "sha256": recorded.sha256, **shown}


def _shown(file: str, recorded: _Recorded) -> dict[str, Any]:
    if not file.endswith(".py"):
        return _answer(None, f"no Python file: {_ONLY_LINES}")
    data = _on_disk(file)
    state = None if recorded.sha256 is None else state_of(data, recorded.sha256)
    if recorded.text is not None:
        return _answer("recording", _of_recorded(state), state, recorded.text)
    if data is None:
        return _answer(None, f"not on this machine: {_ONLY_LINES}", state)
    if state == CHANGED:
        return _answer(None, f"changed since the recording: {_ONLY_LINES}", state)
    if len(data) > MOST_TEXT:
        return _answer(None, f"larger than 2 MiB: {_ONLY_LINES}", state)
    why = None if state == SAME else "as it is on this machine now: the recording has no hash to compare it with"
    return _answer("disk", why, state, text_of(data))


def _of_recorded(state: str | None) -> str | None:
    if state == CHANGED:
        return f"changed since the recording: {_RECORDED}"
    return f"not on this machine: {_RECORDED}" if state == MISSING else None


def _answer(origin: str | None, why: str | None, state: str | None = None, text: str | None = None) -> dict[str, Any]:
    return {"text": text, "origin": origin, "state": state, "why": why}


def _on_disk(file: str) -> bytes | None:
    """The bytes of a regular Python file, also where a link leads to it."""
    try:
        found = Path(file).resolve(strict=True)
    except (OSError, ValueError, RuntimeError):
        return None
    return content_of(str(found)) if found.suffix == ".py" and Path(file).is_absolute() else None
