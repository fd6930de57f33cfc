"""An array to which values are added."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class GrowingArray:
    """What was given of it before stays valid."""

    def __init__(self, kind: Any) -> None:
        self._kept: NDArray[Any] = np.empty(0, kind)
        self._length = 0

    @property
    def values(self) -> NDArray[Any]:
        return self._kept[: self._length]

    def add(self, values: Any, growth: float, at: int | None = None) -> None:
        """At the end, or instead of all from a place on: then the old values stay with whoever has them.

        `growth` is how many times as many there may be in the end. Room that is never used takes no memory.
        """
        begin = self._length if at is None else at
        end = begin + len(values)
        if end > len(self._kept) or begin < self._length:
            size = len(self._kept) if end <= len(self._kept) else max(int(end * growth), len(self._kept) * 5 // 4)
            larger = np.empty(size, np.result_type(self._kept, values) if begin else values.dtype)
            larger[:begin] = self._kept[:begin]
            self._kept = larger
        self._kept[begin:end] = values
        self._length = end
