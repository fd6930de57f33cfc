"""The derived rules on disk, because reading the schemas takes longer than all else that is done with them.

Named after what they are derived from, so that a file is never out of date: another torch, or another torchreel, finds
none. A file that cannot be read or written is as good as none.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

import msgspec

from torchreel.tape.rules.hot_ops import FILE as HOT_OPS
from torchreel.tape.rules.rule import Rule
from torchreel.tape.rules.schemas import files

SOURCES = ("by_hand.py", "derivation.py", "rule.py", "unboxed.py")


def load() -> tuple[Rule, ...] | None:
    """The rules of this torch and this torchreel, if they are there."""
    try:
        return msgspec.msgpack.decode(_path().read_bytes(), type=tuple[Rule, ...])
    except (OSError, RuntimeError, msgspec.MsgspecError):
        return None


def store(rules: tuple[Rule, ...]) -> None:
    """Keep them for the next process, if that is possible."""
    with contextlib.suppress(OSError, RuntimeError):
        path = _path()
        path.parent.mkdir(parents=True, exist_ok=True)
        number, name = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(number, "wb") as file:
            file.write(msgspec.msgpack.encode(rules))
        Path(name).replace(path)


def _path() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    folder = Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache"
    sources = (*files(), HOT_OPS, *(Path(__file__).with_name(name) for name in SOURCES))
    digest = hashlib.sha256(b"".join(hashlib.sha256(path.read_bytes()).digest() for path in sources))
    return folder / "torchreel" / f"rules-{digest.hexdigest()[:32]}.msgpack"
