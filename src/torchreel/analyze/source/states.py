"""States: whether the files that a recording ran are on this machine now as they were when it ended.

- `same`: the file has the bytes that were hashed then.
- `changed`: it has others.
- `missing`: there is no regular file of at most 64 MiB under that path, or it cannot be read.

Files that the table `sources` does not name have no state: reels of older versions, imported snapshots and profiles of
deployed models have no hashes to compare with.
"""

from __future__ import annotations

import pyarrow as pa

from torchreel.reel import Reel
from torchreel.reel.source_files import content_of, digest_of

SAME, CHANGED, MISSING = "same", "changed", "missing"


def state_of(data: bytes | None, sha256: str) -> str:
    """Of one file: its bytes now, None if it has none that can be read, and its hash then."""
    return _state(None if data is None else digest_of(data), sha256)


def source_states(reel: Reel) -> pa.Table:
    """A row per row of `sources` that has a hash: process, path, bytes and sha256 then, state now.

    Each file is read once.
    """
    table = reel.table("sources", ["path", "bytes", "sha256"])
    rows = [row for row in table.to_pylist() if row["path"] is not None and row["sha256"] is not None]
    now: dict[str, str | None] = {}
    for path in sorted({row["path"] for row in rows}):
        data = content_of(path)
        now[path] = None if data is None else digest_of(data)
    for row in rows:
        row["state"] = _state(now[row["path"]], row["sha256"])
    return pa.Table.from_pylist(rows, schema=table.schema.append(pa.field("state", pa.string())))


def _state(now: str | None, then: str) -> str:
    if now is None:
        return MISSING
    return SAME if now == then else CHANGED
