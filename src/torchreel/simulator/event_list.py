"""A request trace as a plain list of events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from torchreel.errors import OptionError
from torchreel.reel.allocator_history.actions import ALLOC, CODES, FREE, FREE_COMPLETED
from torchreel.simulator.request_trace import Columns, RequestTrace
from torchreel.simulator.rules import MOST_BYTES

Event = Mapping[str, Any] | Sequence[Any]

_ALLOWED = ("alloc", "free", "free_requested", "free_completed", "empty_cache", "release_pool")
_FIELDS = ("action", "addr", "size", "stream", "pool")


def request_trace_of_list(events: Iterable[Event]) -> RequestTrace:
    """A request trace of plain events: dicts with action, addr, size, stream and pool, or tuples in that order."""
    columns = Columns()
    handles: dict[Any, int] = {}  # a block's name is any value that can be a key
    live: set[int] = set()
    pools: dict[tuple[int, int], int] = {(0, 0): 0}
    for event_index, event in enumerate(events):
        action, name, size, stream, pool = _fields(event, event_index)
        index = pools.setdefault(pool, len(pools))
        try:
            handle = handles.setdefault(name, len(handles))
        except TypeError:
            raise _wrong(event_index, "addr", name, "a number or a text") from None
        code = CODES[action]
        if code == ALLOC:
            if handle in live:
                raise OptionError(f"Event {event_index} allocates {name!r}, which is not freed yet: name it otherwise.")
            if size == 0:
                continue  # such requests never reach the allocator
            live.add(handle)
        elif code in (FREE, FREE_COMPLETED):
            if handle not in live:
                continue
            live.discard(handle)
        columns.add(code, handle, size, stream, index, event_index)
    return RequestTrace("cuda:0", **columns.arrays(), pools=list(pools))


def _fields(event: Event, event_index: int) -> tuple[str, Any, int, int, tuple[int, int]]:
    if isinstance(event, Mapping):
        values = event
    elif isinstance(event, Sequence) and not isinstance(event, str):
        values = dict(zip(_FIELDS, event, strict=False))
    else:
        raise OptionError(
            f"Event {event_index} is {event!r}: give a dict with {', '.join(_FIELDS)}, or a tuple of them."
        )
    action = values.get("action")
    if action not in _ALLOWED:
        raise _wrong(event_index, "action", action, f"one of {', '.join(_ALLOWED)}")
    size, stream = values.get("size") or 0, values.get("stream") or 0
    for key, number, least, most in (("size", size, 0, MOST_BYTES), ("stream", stream, -(2**63), 2**63 - 1)):
        if isinstance(number, bool) or not isinstance(number, int | np.integer) or not least <= number <= most:
            raise _wrong(event_index, key, number, "a whole number of reasonable size")
    if action == "alloc" and "size" not in values:
        raise _wrong(event_index, "size", None, "a number of bytes")
    return action, values.get("addr"), int(size), int(stream), _pool_id(values.get("pool"), event_index)


def _pool_id(pool: Any, event_index: int) -> tuple[int, int]:
    if pool is None:
        return (0, 0)
    if isinstance(pool, Sequence) and len(pool) == 2 and all(isinstance(number, int) for number in pool):
        return (pool[0], pool[1])
    raise _wrong(event_index, "pool", pool, "two numbers, such as (0, 0) for the default one")


def _wrong(event_index: int, key: str, value: Any, allowed: str) -> OptionError:
    return OptionError(f"Event {event_index} has the {key} {value!r}: it must be {allowed}.")
