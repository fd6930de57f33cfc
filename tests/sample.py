"""A sample of many alike cases for `make test`; `make test-long` has them all."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def sampled(values: Iterable[Any], one_in: int, name: Callable[[Any], str] = str) -> list[Any]:
    """The values as parameters, of which about one in so many is not long: always the same ones, by their names.

    A tuple is the values of several parameters.
    """
    return [
        value if in_sample(name(value), one_in) else pytest.param(*_parts(value), marks=pytest.mark.long)
        for value in values
    ]


def _parts(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def in_sample(name: str, one_in: int) -> bool:
    return zlib.crc32(name.encode()) % one_in == 0
