"""RequestTrace: the allocs and frees of one device, without what an allocator made of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from torchreel.simulator.conf import Conf

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class RequestTrace:
    device: str
    actions: npt.NDArray[np.int8]
    handles: Ints
    sizes: Ints
    streams: Ints
    pool_of: npt.NDArray[np.int32]
    ids: Ints
    """The ids of the events in the recording, or their places in the list; -1 for blocks that were there before."""
    pools: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    flags: dict[int, set[str]] = field(default_factory=dict)
    conf: Conf = field(default_factory=Conf)
    torch_version: tuple[int, int] | None = None
    total: int | None = None
    fraction: float | None = None
    recorded_peak: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def events(self) -> int:
        return len(self.actions)


@dataclass(frozen=True)
class RequestTraces:
    """The request traces of all devices, by name: what can be simulated many times without being read again."""

    devices: dict[str, RequestTrace]


class Columns:
    """A request trace in the making."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, int, int, int, int]] = []

    def add(self, action: int, handle: int, size: int, stream: int, pool: int, id: int) -> None:
        self.rows.append((action, handle, size, stream, pool, id))

    def arrays(self) -> dict[str, Any]:
        """The columns of a RequestTrace."""
        rows = np.array(self.rows, np.int64).reshape(len(self.rows), 6)
        return {
            "actions": rows[:, 0].astype(np.int8),
            "handles": np.ascontiguousarray(rows[:, 1]),
            "sizes": np.ascontiguousarray(rows[:, 2]),
            "streams": np.ascontiguousarray(rows[:, 3]),
            "pool_of": rows[:, 4].astype(np.int32),
            "ids": np.ascontiguousarray(rows[:, 5]),
        }
