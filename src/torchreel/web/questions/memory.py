"""Memory over time, and who holds it at a moment: the numbers of `torchreel memory`."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from torchreel.analyze.memory import holders
from torchreel.analyze.memory.model.columns import Ints
from torchreel.errors import OptionError
from torchreel.web.query import Query
from torchreel.web.viewed_reel import ViewedReel

BY = ("stack", "module", "op", "category")
_POINTS = 800
_ROWS = 200


def memory(viewed: ViewedReel, query: Query) -> Any:
    """The curve of a device, and its holders at a time since the reel's beginning, or at the peak."""
    device = query.number("device", 0, 1_000, 0)
    by = query.choice("by", BY, "stack")
    at = query.number("at", 0, 1 << 62, 0) if "at" in query else None
    if not viewed.devices:
        return {"devices": [], "holders": []}
    if not 0 <= device < len(viewed.devices):
        raise OptionError(f"There is no device {device}: there are {len(viewed.devices)}.")
    chosen = viewed.devices[device]
    history = chosen.history
    # Without times, as in snapshots of old torch, an event's number stands for its time.
    origin, end = (viewed.origin, viewed.end) if history.has_times else (0, max(history.events, 1))
    times = history.times - origin
    peak = int(history.allocated.argmax()) - 1
    position = peak if at is None else int(times.searchsorted(at, "right")) - 1
    when = [int(times[n]) if 0 <= n < len(times) else None for n in (peak, position)]
    return {
        "devices": [f"{each.history.device}, {each.history.process_name}" for each in viewed.devices],
        "has_times": history.has_times,
        "end": end,
        "most": _most(history.allocated, times, end),
        "peak": int(history.allocated.max()),
        "peak_at": when[0],
        "at": when[1],
        "allocated": int(history.allocated[position + 1]),
        "holders": holders(chosen, by, position).slice(0, _ROWS).to_pylist(),
    }


def _most(allocated: Ints, times: Ints, end: int) -> list[int]:
    """The most that was allocated in each part of the run; allocated[n] is what was there before event n."""
    before = times.searchsorted(np.linspace(0, end, _POINTS + 1))
    return [int(allocated[a : b + 1].max()) for a, b in itertools.pairwise(before.tolist())]
