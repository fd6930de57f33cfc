"""What a program adds to a trace: kept in the reel's meta.json, written at the top level of exported traces."""

from __future__ import annotations

import json
from typing import Any

from torchreel.errors import OptionError
from torchreel.reel import Reel
from torchreel.reel.meta import write_meta


def parsed(key: str, value: str) -> Any:
    """The value of a JSON text."""
    try:
        return json.loads(value)
    except (TypeError, ValueError) as error:
        raise OptionError(
            f"The metadata {key!r} has the value {value!r}, which is not JSON ({error}): "
            "write it with json.dumps, or use add_metadata for plain text."
        ) from None


def attach(reel: Reel, metadata: dict[str, Any]) -> None:
    """Put the metadata into the reel, in memory and on disk."""
    reel.meta["metadata"] = metadata
    write_meta(reel.path, reel.meta)
