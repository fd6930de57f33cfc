"""Short ways to ask a reel in tests."""

from __future__ import annotations

from typing import Any

import torchreel


def rows(reel: torchreel.Reel, query: str) -> list[dict[str, Any]]:
    return reel.sql(query).to_pylist()


def names(reel: torchreel.Reel, where: str = "true") -> list[str]:
    return [row["name"] for row in rows(reel, f"select name from ops where {where} order by process, id")]
