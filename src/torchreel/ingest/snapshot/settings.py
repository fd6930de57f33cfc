"""The settings of the allocators in a snapshot -> the table settings, each value as JSON."""

from __future__ import annotations

import json
import math
from typing import Any

import pyarrow as pa

from torchreel.ingest.rows import Budget, WrongValueError, whole, wrong

_DEEPEST = 8
_MOST = 2**20


def read_settings(settings: object) -> pa.Table:
    """Check and read `allocator_settings`; without one the table is empty."""
    if settings is None:
        settings = {}
    if type(settings) is not dict:
        wrong("allocator_settings", settings, "a dictionary")
    values = Budget(_MOST, "values and lines of settings")
    rows = {name: _json(value, f"allocator_settings.{name[:60]}", values) for name, value in _items(settings)}
    return pa.table({"name": pa.array(list(rows), pa.string()), "value": pa.array(list(rows.values()), pa.string())})


def _items(settings: Any) -> list[tuple[str, Any]]:
    for name in settings:
        if type(name) is not str:
            raise WrongValueError(f"allocator_settings has a key of type {type(name).__name__}, not a text")
    return [(whole(name), value) for name, value in settings.items()]


def _json(value: object, location: str, values: Budget) -> str:
    _check(value, location, values, 0)
    return whole(json.dumps(value, ensure_ascii=False))


def _check(value: Any, location: str, values: Budget, depth: int) -> None:
    """That the value is JSON's, and not endless: a list may hold itself, or another one many times."""
    values.spend(1 + len(value) // 64 if type(value) is str else 1)
    if value is None or type(value) in (bool, str):
        return
    if type(value) is int and abs(value) < 2**128:
        return
    if type(value) is float and math.isfinite(value):
        return
    if depth < _DEEPEST and type(value) is dict and all(type(key) is str for key in value):
        for key, item in value.items():
            values.spend(len(key) // 64)
            _check(item, f"{location}.{key[:60]}", values, depth + 1)
    elif depth < _DEEPEST and type(value) in (list, tuple):
        for index, item in enumerate(value):
            _check(item, f"{location}[{index}]", values, depth + 1)
    else:
        wrong(location, value, "the value of a setting")
