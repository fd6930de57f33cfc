"""The history of the allocators in a snapshot -> the table allocs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from torchreel.ingest.rows import Budget, Rows, WrongValueError, as_list, matches
from torchreel.ingest.snapshot.pairing import KINDS, OTHER, Events, Numbers, pair, totals
from torchreel.ingest.snapshot.stacks import Stacks
from torchreel.ingest.snapshot.state import MAX_DEVICES, forward_column, nested, pool_column

# Microseconds that are still nanoseconds of 64 bits: up to the year 2262.
LAST_TIME = (2**63 - 1) // 1000


@dataclass(frozen=True)
class TracedEvents:
    """The table without the names of devices, which are numbers here."""

    allocs: dict[str, pa.Array]
    device: Numbers
    devices: int
    live: dict[tuple[int, int], int]


def read_events(values: Sequence[Any], stacks: Stacks, allocated: dict[int, int], budget: Budget) -> TracedEvents:
    """Check and read the traces of all devices; `allocated` is what each holds at the end."""
    if len(values) > MAX_DEVICES:
        raise WrongValueError(f"device_traces has {len(values)} devices, more than {MAX_DEVICES}")
    traces = [as_list(trace, f"device_traces[{index}]") for index, trace in enumerate(values)]
    lengths = [len(trace) for trace in traces]
    budget.spend(sum(lengths))
    rows = Rows(list(chain.from_iterable(traces)), nested(traces, lambda index: f"device_traces[{index}]"))
    device = np.repeat(np.arange(len(traces), dtype=np.int64), lengths)
    columns = _columns(rows, stacks)
    addresses, sizes = columns["addr"].fill_null(0).to_numpy(), columns["size"].to_numpy()
    events = Events(device, _kinds(columns["action"]), addresses, sizes)
    pairing = pair(events)
    columns["total"] = pa.array(totals(events, pairing, allocated))
    columns["alloc"] = pa.array(pairing.alloc, mask=pairing.alloc < 0)
    return TracedEvents(columns, device, len(traces), pairing.live)


def _columns(rows: Rows, stacks: Stacks) -> dict[str, pa.Array]:
    action = rows.texts("action")
    return {
        "id": pa.array(np.arange(len(rows), dtype=np.int64)),
        "time_ns": rows.integers("time_us", "a time in microseconds", high=LAST_TIME, required=False, scale=1000),
        "action": action,
        "addr": _addresses(rows, action),
        "size": rows.sizes("size"),
        "stream": rows.integers("stream", "the handle of a stream", low=-(2**63), required=False),
        "stack": stacks.column(rows),
        "category": _categories(rows),
        "pool": pool_column(rows, "pool_id"),
        "device_free": rows.sizes("device_free", required=False),
        "compile_context": rows.texts("compile_context", required=False),
        "metadata": rows.texts("user_metadata", required=False),
        "forward": forward_column(rows),
    }


def _addresses(rows: Rows, action: pa.DictionaryArray) -> pa.Array:
    """The addresses: only where memory ran out is there none."""
    addresses = rows.addresses("addr", required=False)
    missing = addresses.is_null().to_numpy(zero_copy_only=False) & ~matches(action, "oom")
    if missing.any():
        raise WrongValueError(f"{rows.location(int(missing.argmax()))} has no 'addr'")
    return addresses


def _categories(rows: Rows) -> pa.DictionaryArray:
    """What blocks are for; a reader of snapshots wants the word unknown where a reel has nothing."""
    column = rows.texts("category", required=False)
    hidden = matches(column, "unknown") | column.is_null().to_numpy(zero_copy_only=False)
    indices = pa.array(column.indices.fill_null(0).to_numpy(), mask=hidden)
    return pa.DictionaryArray.from_arrays(indices, column.dictionary)


def _kinds(action: pa.DictionaryArray) -> Numbers:
    kinds = np.array([KINDS.get(name, OTHER) for name in action.dictionary.to_pylist()] or [OTHER], np.int64)
    numbers: Numbers = kinds[action.indices.to_numpy()]
    return numbers
