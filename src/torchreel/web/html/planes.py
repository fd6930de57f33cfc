"""Byte planes: columns of whole numbers, all lowest bytes first, then all second ones, and so on.

High bytes are nearly always zero, and low bytes stand beside their like, so that gzip finds what repeats from step to
step. `viewer/src/file/planes.ts` reads them.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

_LEVEL = 6


def compressed(data: bytes) -> bytes:
    return gzip.compress(data, _LEVEL, mtime=0)


def zigzag(values: Ints) -> Ints:
    """Signed numbers as those from 0 on, the small ones staying small: 0, -1, 1, -2 ... are 0, 1, 2, 3 ..."""
    return (values << 1) ^ (values >> 63)


def nullable(values: Ints, valid: NDArray[np.bool_]) -> Ints:
    """Signed numbers, or 0 where there is none."""
    return np.where(valid, zigzag(values) + 1, 0)


@dataclass
class Planes:
    """Columns of one length, as they are written one after the other."""

    columns: list[tuple[str, int]] = field(default_factory=list)
    """The name of each, and how many bytes a number of it takes."""
    parts: list[bytes] = field(default_factory=list)

    def add(self, name: str, values: Ints) -> None:
        """A column of numbers from 0 on."""
        width = (int(values.max()).bit_length() + 7) // 8 if len(values) else 0
        spread = np.ascontiguousarray(values, np.dtype("<i8")).view(np.uint8).reshape(-1, 8)
        self.columns.append((name, width))
        self.parts.append(np.ascontiguousarray(spread[:, :width].T).tobytes())

    @classmethod
    def of(cls, columns: Mapping[str, Any]) -> Planes:
        planes = cls()
        for name, values in columns.items():
            planes.add(name, values)
        return planes

    def compressed(self) -> bytes:
        return compressed(b"".join(self.parts))
