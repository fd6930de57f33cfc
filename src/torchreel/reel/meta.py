"""meta.json: what a reel says about itself, its format version, and how older versions are read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torchreel.errors import CorruptReelError, NewerReelError, NotAReelError, TruncatedReelError, UnwrittenReelError

FORMAT_VERSION = 7
FILE = "meta.json"

Meta = dict[str, Any]


def _from_1_to_2(meta: Meta) -> Meta:
    """Version 2 has more tables and columns about memory: in older reels they are empty and null."""
    return {**meta, "format": 2}


def _from_2_to_3(meta: Meta) -> Meta:
    """Version 3 has a table of the ops of tapes: older reels have no tapes."""
    return {**meta, "format": 3}


def _from_3_to_4(meta: Meta) -> Meta:
    """Version 4 has the backend and the debug handle of an op: in older reels they are null."""
    return {**meta, "format": 4}


def _from_4_to_5(meta: Meta) -> Meta:
    """Version 5 has local ranks, torch's number of a call, and keyword arguments: in older reels they are null."""
    return {**meta, "format": 5}


def _from_5_to_6(meta: Meta) -> Meta:
    """Version 6 has a table of the source files: older reels do not know them."""
    return {**meta, "format": 6}


def _from_6_to_7(meta: Meta) -> Meta:
    """Version 7 has the activities of devices, collectives and process groups: older reels have none or know less."""
    return {**meta, "format": 7}


# From a version to the function that turns its meta.json into the next version's.
MIGRATIONS: dict[int, Callable[[Meta], Meta]] = {
    1: _from_1_to_2,
    2: _from_2_to_3,
    3: _from_3_to_4,
    4: _from_4_to_5,
    5: _from_5_to_6,
    6: _from_6_to_7,
}


def write_meta(reel: Path, meta: Meta) -> None:
    """Replace meta.json in one step, so that a reader never sees half of it."""
    temporary = reel / f".{FILE}.{os.getpid()}"
    try:
        temporary.write_text(json.dumps({"format": FORMAT_VERSION, **meta}, indent=1) + "\n")
        temporary.replace(reel / FILE)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UnwrittenReelError(f"{reel / FILE} cannot be written: {error.strerror}. Make room on the disk.") from None


def read_meta(reel: Path) -> Meta:
    """Read and migrate meta.json (`written_format` is the version on disk), or say what is wrong with the path."""
    path = reel / FILE
    if not reel.exists():
        raise NotAReelError(f"There is no reel at {reel}: check the path, or make one with 'torchreel record'.")
    if not path.is_file():
        hint = (
            "import it with 'torchreel import' if it is another tool's file"
            if reel.is_file()
            else "name a directory that 'torchreel record' wrote"
        )
        raise NotAReelError(f"{reel} is not a reel (it has no {FILE}): {hint}.")
    text = path.read_bytes()
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        if not text.rstrip().endswith(b"}"):
            raise TruncatedReelError(
                f"{path} ends after {len(text)} bytes, before it is complete: restore it from a copy."
            ) from None
        raise CorruptReelError(f"{path} is not valid JSON ({error}): restore it from a copy.") from None
    if not isinstance(content, dict) or type(content.get("format")) is not int:
        raise NotAReelError(f"{reel} is not a reel ({FILE} has no integer 'format'): it belongs to another tool.")
    meta: Meta = content
    version: int = meta["format"]
    if version > FORMAT_VERSION:
        raise NewerReelError(
            f"{reel} has format version {version} and this torchreel reads up to {FORMAT_VERSION}: "
            "upgrade with 'pip install --upgrade torchreel'."
        )
    meta["written_format"] = version
    while version < FORMAT_VERSION:
        if version not in MIGRATIONS:
            raise CorruptReelError(f"{path} has format version {version}, which never existed.")
        meta = MIGRATIONS[version](meta)
        version = meta["format"]
    return meta
