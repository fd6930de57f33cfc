"""The calls of a reel as torch.profiler shows them: one table, from which averages and events are made.

torch.profiler leaves out some utility ops, and merges a call with the only call that it makes if both have the same
name: an `aten::sum` that calls `aten::sum` and nothing else counts as one. An event of the allocator outside of all
calls is a call `[memory]` that takes no time. The table has, in the order of their beginning, one row per call:

- `name` as tables show it, `trace_name` as traces do, `overload`, `kind`;
- `start_ns`, `dur_ns`, `self_ns`, `bytes`, `self_bytes`, `flops`, `async`;
- `parent`, the row of the call around it; `flow`, a number that a forward call and its backward call share;
- `script_modules`, in which modules and methods of TorchScript it stands, else null;
- `id`, `thread`, `fwd_thread`, `seq`, `module`, `stack`, `inputs`, `node`: as in the reel. -1 stands for none.

Everything is computed on whole columns: there is no Python object per call.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from torch.autograd.profiler_util import MEMORY_EVENT_NAME

from torchreel._torch.profiler import is_hidden_event
from torchreel.profiler.columns import Booleans, Integers, above, numbers, rows_of, sums
from torchreel.profiler.flops import place_flops
from torchreel.profiler.names import shown_names
from torchreel.profiler.nesting import crossed, nest
from torchreel.reel import Reel

_IDS = ("id", "thread", "fwd_thread", "seq", "module", "stack", "inputs", "node")
_COLUMNS = [*_IDS, "parent", "fwd", "name", "overload", "kind", "start_ns", "dur_ns", "flops", "alloc_bytes", "async"]
_COLUMNS += ["script_modules"]
# Calls of these kinds say where others were made, and have no stack of their own.
PYTHON_CALLS = ("python", "module")


def read_calls(
    reel: Reel,
    python_calls: bool,
    flops: bool,
    memory: bool = True,
    every: bool = False,
    moved: pa.Table | None = None,
) -> pa.Table:
    """The calls of the reel's own process; with `python_calls` also those of Python functions and modules.

    Without `memory` there is nothing of the allocator, though a recording that was joined may have it.

    With `every`, those too that torch.profiler leaves out or merges. `moved` has the `id` of those that are shown at
    another time.
    """
    ops = _sorted_ops(reel, moved)
    caller = rows_of(numbers(ops, "id"), numbers(ops, "parent"))
    names = shown_names(reel, ops)
    kind = ops["kind"].cast(pa.string()).to_numpy(zero_copy_only=False)
    end = numbers(ops, "start_ns") + numbers(ops, "dur_ns")
    is_python_call = np.isin(kind, PYTHON_CALLS)
    hidden = np.array([is_hidden_event(name) for name in names.dictionary.to_pylist()], bool)[names.indices.to_numpy()]
    hidden &= not every
    hidden |= (
        crossed(caller, end, is_python_call, (kind == "range") & ~_is_async(ops)) if python_calls else is_python_call
    )
    parent, kept = nest(caller, end, names.indices.to_numpy(), hidden, _is_async(ops), merge=not every)
    calls = pa.table(
        {
            "name": names,
            "trace_name": ops["name"].cast(pa.string()).dictionary_encode(),
            "overload": pc.fill_null(ops["overload"].cast(pa.string()), "").dictionary_encode(),
            "kind": pa.array(kind, pa.string()).dictionary_encode(),
            "script_modules": ops["script_modules"].cast(pa.string()).dictionary_encode(),
            "start_ns": ops["start_ns"],
            "dur_ns": ops["dur_ns"],
            "bytes": numbers(ops, "alloc_bytes", 0) if memory else np.zeros(len(parent), np.int64),
            "flops": place_flops(reel, ops, names, caller) if flops else np.zeros(len(parent), np.int64),
            "async": _is_async(ops),
            "flow": _flows(ops),
            "parent": np.where(parent >= 0, (np.cumsum(kept) - 1)[parent], -1),
            **{name: numbers(ops, name) for name in _IDS if name != "stack"},
            "stack": np.where(is_python_call, -1, numbers(ops, "stack")),
        }
    ).filter(pa.array(kept))
    if memory:
        allocs, around = _allocs(reel, ops, caller, hidden)
        shown = (around < 0) | every
        row_shown = np.append(np.cumsum(kept) - 1, -1)
        calls = _with_memory(calls, allocs.filter(pa.array(shown)), row_shown[around[shown]])
    return _with_own(calls)


def _sorted_ops(reel: Reel, moved: pa.Table | None) -> pa.Table:
    ops = reel.table("ops", _COLUMNS)
    ops = ops.filter(pc.equal(ops["process"], 0))
    if moved is not None and moved.num_rows:
        row = rows_of(numbers(moved, "id"), numbers(ops, "id"))
        for name in ("start_ns", "dur_ns"):
            times = np.where(row >= 0, numbers(moved, name)[row], numbers(ops, name))
            ops = ops.set_column(ops.column_names.index(name), name, pa.array(times))
    start = numbers(ops, "start_ns")
    end = start + numbers(ops, "dur_ns")
    return ops.take(pa.array(np.lexsort((numbers(ops, "id"), -end, start)))).combine_chunks()


def _is_async(ops: pa.Table) -> Booleans:
    is_async: Booleans = pc.fill_null(ops["async"], False).to_numpy()
    return is_async


def _flows(ops: pa.Table) -> Integers:
    """A number from 1 that a forward call and its backward call share, in the order of backward calls, as a trace has
    it; 0 for all others."""
    ids, forward = numbers(ops, "id"), numbers(ops, "fwd")
    linked = np.flatnonzero((forward >= 0) & np.isin(forward, ids))
    linked = linked[np.argsort(ids[linked])]
    distinct, first = np.unique(forward[linked], return_index=True)
    number = np.empty(len(distinct), np.int64)
    number[np.argsort(first)] = np.arange(1, len(distinct) + 1)
    forward[pc.not_equal(ops["kind"].cast(pa.string()), "backward").to_numpy()] = -1
    row = rows_of(distinct, np.where(np.isin(ids, forward), ids, forward))
    return np.where(row >= 0, number[row] if len(number) else 0, 0)


def _allocs(reel: Reel, ops: pa.Table, caller: Integers, hidden: Booleans) -> tuple[pa.Table, Integers]:
    """The allocator's events, and the row of the innermost call around each that is not hidden, -1 for none."""
    allocs = reel.table("allocs", ["time_ns", "thread", "action", "size", "op"])
    known = pc.and_(pc.not_equal(allocs["action"].cast(pa.string()), "preexisting"), pc.is_valid(allocs["size"]))
    allocs = allocs.filter(pc.and_(known, pc.equal(allocs["process"], 0)))
    row = rows_of(numbers(ops, "id"), numbers(allocs, "op"))
    return allocs, above(row, caller, lambda _, up: hidden[up])


def _with_memory(calls: pa.Table, allocs: pa.Table, around: Integers) -> pa.Table:
    """The calls and, among them, the events of the allocator, each with the row of the call around it."""
    count = allocs.num_rows
    if count == 0:
        return calls
    sign = np.where(pc.equal(allocs["action"].cast(pa.string()), "free").to_numpy(), -1, 1)
    none, zero = np.full(count, -1), np.zeros(count, np.int64)
    texts = {"name": MEMORY_EVENT_NAME, "trace_name": None, "overload": "", "kind": "memory", "script_modules": None}
    columns = {name: pa.array([text] * count, pa.string()).dictionary_encode() for name, text in texts.items()}
    columns |= {name: pa.array(none) for name in _IDS} | {"parent": pa.array(around)}
    columns |= {name: pa.array(zero) for name in ("dur_ns", "flops", "flow")}
    columns |= {"start_ns": allocs["time_ns"], "bytes": pa.array(numbers(allocs, "size") * sign)}
    columns |= {"async": pa.array(zero.astype(bool)), "thread": pa.array(numbers(allocs, "thread"))}
    both = pa.concat_tables([calls, pa.table(columns).select(calls.column_names)]).unify_dictionaries()
    order = np.argsort(numbers(both, "start_ns"), kind="stable")
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    parent = numbers(both, "parent")[order]
    moved = np.where(parent >= 0, position[parent], -1)
    both = both.take(pa.array(order)).combine_chunks()
    return both.set_column(both.column_names.index("parent"), "parent", pa.array(moved))


def _with_own(calls: pa.Table) -> pa.Table:
    """The calls with what each did itself, without its children."""
    parent, is_async = numbers(calls, "parent"), _is_async(calls)
    for total, own in (("dur_ns", "self_ns"), ("bytes", "self_bytes")):
        values = numbers(calls, total)
        calls = calls.append_column(own, pa.array(np.where(is_async, 0, values - sums(parent, values))))
    return calls
