"""Memory events of a trace -> the columns of allocs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
    """For each free the event that made its block: the one before it at its address, unless that is a free, too."""
    addr = columns["addr"]
    device = columns["device"].indices.to_numpy()
    action = columns["action"].cast(pa.string())
    alloc, free = (pc.equal(action, name).to_numpy(zero_copy_only=False) for name in ("alloc", "free"))
    chosen = np.flatnonzero((alloc | free) & addr.is_valid().to_numpy(zero_copy_only=False))
    at = addr.fill_null(0).to_numpy()
    chosen = chosen[np.lexsort((chosen, at[chosen], device[chosen]))]
    before, after = chosen[:-1], chosen[1:]
    pairs = (at[before] == at[after]) & (device[before] == device[after]) & alloc[before] & free[after]
    made = np.full(len(addr), NOTHING)
    made[after[pairs]] = before[pairs]
    return column(made)
