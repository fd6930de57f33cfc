"""Memory events of a trace -> the columns of allocs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from torchreel.ingest.kineto.columns import NOTHING, Ints, Mask, column


def alloc_columns(given: dict[str, Ints], devices: list[str], oom: Mask) -> tuple[Ints, dict[str, Any]]:
    """The order of the events, and their columns in that order."""
    order = np.lexsort((given["order"], given["start"]))
    size = given["bytes"][order]
    actions = np.where(size < 0, 1, 0)
    actions[oom[order]] = 2
    names = [devices[index] for index in order.tolist()]
    known = np.where(size == NOTHING, NOTHING, np.abs(size))
    addr = given["addr"][order]
    return order, {
        "id": pa.array(np.arange(len(order))),
        "device": pa.array(names, pa.string()).dictionary_encode(),
        "action": pa.array(["alloc", "free", "oom"]).take(pa.array(actions)).dictionary_encode(),
        "addr": column(addr),
        "size": column(known),
        "total": column(_totals(given["total"][order], np.where(size == NOTHING, 0, size), names)),
        "reserved": column(given["reserved"][order]),
    }


def _totals(totals: Ints, sizes: Ints, devices: list[str]) -> Ints:
    """What is allocated after each event; before torch 1.11 a trace does not say it, and the sum is taken."""
    if (totals != NOTHING).any() or not len(totals):
        return totals
    result = totals.copy()
    codes = pa.array(devices, pa.string()).dictionary_encode().indices.to_numpy()
    for code in np.unique(codes):
        own = codes == code
        result[own] = np.cumsum(sizes[own])
    return result


def match_frees(columns: dict[str, Any]) -> pa.Array:
    """For each free the event that made its block."""
    live: dict[tuple[str, int], int] = {}
    result: list[int | None] = []
    for id, (device, action, addr) in enumerate(
        zip(*(columns[name].to_pylist() for name in ("device", "action", "addr")), strict=True)
    ):
        made = None
        if addr is not None and action == "alloc":
            live[device, addr] = id
        elif addr is not None and action == "free":
            made = live.pop((device, addr), None)
        result.append(made)
    return pa.array(result, pa.int64())
