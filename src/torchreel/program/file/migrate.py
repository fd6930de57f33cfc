"""Tapes of older formats: how the plain data of each becomes that of the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# What msgpack holds without types: a dict of the fields of a Program, with structs of array_like as lists.
Plain = dict[str, Any]

# From a version to the function that turns its data into the next version's.
MIGRATIONS: dict[int, Callable[[Plain], Plain]] = {}


def migrate(plain: Plain, version: int, wanted: int) -> Plain:
    """The data of a tape of format `version` as that of format `wanted`."""
    while version < wanted:
        plain = MIGRATIONS[version](plain)
        version += 1
    return plain
