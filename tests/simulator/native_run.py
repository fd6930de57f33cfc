"""Runs a list of events through the native model and gives what it did in the words of the plain one."""

from __future__ import annotations

from typing import Any

import numpy as np

from torchreel import _simulator
from torchreel.reel.allocator_history.actions import ACTIONS, CODES

STATES = ("free", "pending", "allocated")


def run(rules: dict[str, Any], flags: dict[int, set[str]], events: list[tuple[str, int, int, int, int]]) -> Any:
    columns = list(zip(*((CODES[action], *rest) for action, *rest in events), strict=True)) or [()] * 5
    return _simulator.run_request_trace(
        rules,
        flags,
        np.array(columns[0], np.int8),
        *(np.array(column, np.int64) for column in columns[1:4]),
        np.array(columns[4], np.int32),
        True,
    )


def trace(result: Any) -> list[tuple[str, int, int, int, int]]:
    columns = (result["trace"][name].tolist() for name in ("action", "address", "size", "stream", "pool"))
    return [(ACTIONS[action], *rest) for action, *rest in zip(*columns, strict=True)]


def state(result: Any) -> list[tuple[int, int, int, str, int]]:
    columns = (result["state"][name].tolist() for name in ("address", "size", "requested", "state", "pool"))
    return sorted(
        (address, size, asked, STATES[st], pool) for address, size, asked, st, pool in zip(*columns, strict=True)
    )
