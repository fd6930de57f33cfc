"""The JSON of events -> objects."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from torchreel.ingest.kineto.grammar import Grammar

NO_TEXT = Raw(b"")


class Event(msgspec.Struct, gc=False):
    """An event of a trace. Times stay text, because they have more digits than a double."""

    ph: str = ""
    cat: str | None = None
    name: str = ""
    pid: int | str | None = None
    tid: int | str | None = None
    ts: Raw = NO_TEXT
    dur: Raw = NO_TEXT
    args: Raw = NO_TEXT
    id: Raw = NO_TEXT


def _coerced(value: Any, text: bytes) -> Event:
    """An event whose values have other types than they should."""
    if type(value) is not dict or type(value.get("ph")) is not str:
        raise ValueError
    raw = msgspec.json.decode(text, type=dict[str, Raw])

    def number(key: str) -> int | str | None:
        given = value.get(key)
        if type(given) in (int, str, type(None)):
            return given
        return int(given) if type(given) is float else str(given)

    name = value.get("name", "")
    return Event(
        value["ph"],
        value["cat"] if type(value.get("cat")) is str else None,
        name if type(name) is str else msgspec.json.encode(name).decode(),
        number("pid"),
        number("tid"),
        *(raw.get(key, NO_TEXT) for key in ("ts", "dur", "args", "id")),
    )


EVENTS = Grammar(b"traceEvents", rb'\{\s*"(?:ph|name|cat|pid|tid|ts|dur|args|id|s|bp)"\s*:', Event, _coerced)
