"""The tables of the host's half and those of a device's trace -> the tables of the run.

The host's half is what the recorder wrote: ops, memory, stacks. The device's half is a trace that was taken beside it:
calls of the device's API, kernels, waits, and the ranges that both saw. A call of the API belongs to the operator that
was open on its thread then; with it go the kernels that it launched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from torchreel.ingest.device_join.clock import Alignment, align, is_clock_range
from torchreel.ingest.device_join.open_calls import NONE, OpenCalls, is_kind, numbers, rows_of
from torchreel.ingest.device_join.tables import (
    Tables,
    complete,
    concat,
    first_free,
    merged_devices,
    shifted,
    with_column,
)
from torchreel.ingest.device_join.threads import match_threads
from torchreel.reel.tables import TABLES

# Ops that only the device's half has.
API_KINDS = ("runtime", "driver", "overhead")

# Columns that hold ids of ops.
_OP_COLUMNS = {
    "ops": ("parent", "fwd"),
    "marks": ("op",),
    "allocs": ("op",),
    "kernels": ("op", "launch"),
    "device_ranges": ("op",),
    "syncs": ("launch", "wait_on_launch"),
    "collectives": ("op",),
    "flows": ("op",),
    "counters": ("op",),
    "tape_ops": ("op",),
}
_TIMES = {"ops": "start_ns", "kernels": "start_ns", "device_ranges": "start_ns", "syncs": "start_ns"}
_TIMES |= {"kernel_counters": "start_ns", "samples": "time_ns"}
# Tables of the device's half that are added as they are, but for times and ids.
_ADDED = ("kernels", "device_ranges", "syncs", "streams", "collectives", "process_groups", "kernel_counters", "samples")


@dataclass(frozen=True)
class Joined:
    """The tables of the run, and how the halves came together."""

    tables: Tables
    alignment: Alignment
    kernels: int
    """Activities of devices."""
    unlaunched: int
    """Activities whose launch the trace does not have: it was made before the trace began."""
    outside: int
    """Activities that were launched outside of all operators and ranges."""
    strange_threads: int
    """Threads that called the device's API and that the recorder did not see, or could not tell from another."""


def join_device(host: Mapping[str, pa.Table], device: Mapping[str, pa.Table]) -> Joined:
    """Both halves as one process. Ids of ops are given anew.

    A run may have several traces: each is joined to what the ones before it gave, and in the end `without_clock_ranges`
    takes out what was recorded to align them.
    """
    ours, theirs = complete(host), complete(device)
    alignment = align(ours["ops"], theirs["ops"])
    for name, column in _TIMES.items():
        if theirs[name].num_rows:
            theirs[name] = with_column(theirs[name], column, alignment(numbers(theirs[name][column])))
    return _Join(ours, theirs, alignment).joined()


class _Join:
    def __init__(self, host: Tables, device: Tables, alignment: Alignment) -> None:
        self._host = host
        self._device = device
        self._alignment = alignment
        self._calls = OpenCalls.of(host["ops"])
        self._is_api = is_kind(device["ops"], *API_KINDS)
        self._place_calls()

    def _place_calls(self) -> None:
        """For each op of the device's half: its thread here, and the rows of the calls around it."""
        ops = self._device["ops"]
        starts, durations = numbers(ops["start_ns"]), numbers(ops["dur_ns"])
        same = match_threads(self._host, self._device, self._calls, starts, starts + durations)
        self._new_threads = self._added_threads(same)
        known = {**same, **self._new_threads}
        self._threads = np.array(
            [known.get(thread, NONE) for thread in numbers(ops["thread"]).tolist()], dtype=np.int64
        )
        # A time may be off by the error of the alignment: so much later the call was still open, or half over.
        moments = starts + np.minimum(durations // 2, self._alignment.error_ns or 0)
        self._parents = np.full(len(starts), NONE)
        for thread in np.unique(self._threads):
            own = np.flatnonzero(self._threads == thread)
            self._parents[own] = self._calls.innermost(int(thread), moments[own])
        self._launchers = self._calls.launcher(self._parents)
        ranges = is_kind(ops, "range")
        self._launchers[ranges] = self._same_ranges(np.flatnonzero(ranges))

    def _added_threads(self, same: dict[int, int]) -> dict[int, int]:
        """Ids for threads that called the API and are not known here."""
        used = set(numbers(self._device["ops"]["thread"])[self._is_api].tolist()) - {NONE}
        first = first_free(self._host["threads"])
        return {thread: first + place for place, thread in enumerate(sorted(used - same.keys()))}

    def _same_ranges(self, which: np.ndarray) -> np.ndarray:
        """The rows of the ranges here that these ranges of the device's half are."""
        names = self._host["ops"]["name"].to_pylist() if len(which) else []
        wanted = self._device["ops"]["name"].take(pa.array(which)).to_pylist()
        found = []
        for row, name in zip(self._parents[which].tolist(), wanted, strict=True):
            while row != NONE and not (self._calls.is_range[row] and names[row] == name):
                row = int(self._calls.parents[row])
            found.append(row)
        return np.array(found, dtype=np.int64)

    def joined(self) -> Joined:
        device_ids = numbers(self._device["ops"]["id"])
        self._number_ops()
        added = {name: self._device[name] for name in _ADDED}
        kernels = added["kernels"]
        launches = rows_of(device_ids, numbers(kernels["launch"]))
        named = rows_of(device_ids, numbers(kernels["op"]))
        launchers = np.where(launches != NONE, _at(self._launchers, launches), _at(self._launchers, named))
        added["kernels"] = self._kernels(kernels, launches, launchers)
        for name, columns in _OP_COLUMNS.items():
            if name in added and name != "kernels":
                for column in columns:
                    rows = rows_of(device_ids, numbers(added[name][column]))
                    new = (
                        _at(self._new_of_device, rows)
                        if column != "op"
                        else _at(self._host_ids, _at(self._launchers, rows))
                    )
                    added[name] = with_column(added[name], column, new)
        self._shift_ids(added)
        tables = {name: self._concat(name, added.get(name)) for name in TABLES}
        tables["ops"] = self._ops()
        tables["threads"] = self._all_threads()
        tables["devices"] = merged_devices(self._host["devices"], self._noted_devices())
        return Joined(
            {name: table for name, table in tables.items() if table.num_rows},
            self._alignment,
            len(launches),
            int(np.count_nonzero(launches == NONE)),
            int(np.count_nonzero((launches != NONE) & (launchers == NONE))),
            len(self._new_threads),
        )

    def _number_ops(self) -> None:
        """New ids: in the order of time, ours before the API's calls, which lie within them."""
        host, device = self._host["ops"], self._device["ops"]
        api = np.flatnonzero(self._is_api)
        starts = np.concatenate([numbers(host["start_ns"]), numbers(device["start_ns"])[api]])
        old = np.concatenate([numbers(host["id"]), numbers(device["id"])[api]])
        is_device = np.concatenate([np.zeros(host.num_rows, dtype=bool), np.ones(len(api), dtype=bool)])
        self._order = np.lexsort((old, is_device, starts))
        ids = np.empty(len(starts), dtype=np.int64)
        ids[self._order] = np.arange(len(starts))
        self._host_ids = ids[: host.num_rows]
        self._new_of_device = np.full(device.num_rows, NONE)
        self._new_of_device[api] = ids[host.num_rows :]
        self._api = api

    def _kernels(self, kernels: pa.Table, launches: np.ndarray, launchers: np.ndarray) -> pa.Table:
        parents = _at(self._parents, launches)
        kernels = with_column(kernels, "op", _at(self._host_ids, launchers))
        kernels = with_column(kernels, "launch", _at(self._new_of_device, launches))
        begins = _at(numbers(self._device["ops"]["start_ns"]), launches)
        kernels = with_column(kernels, "step", np.where(launches != NONE, self._steps(begins), NONE))
        return with_column(kernels, "module", _at(numbers(self._host["ops"]["module"]), parents))

    def _steps(self, times: np.ndarray) -> np.ndarray:
        """The step in which each of these moments lies, or -1."""
        steps = self._host["steps"].sort_by("start_ns")
        if not steps.num_rows:
            return np.full(len(times), NONE)
        places = np.searchsorted(numbers(steps["start_ns"]), times, side="right") - 1
        found = np.maximum(places, 0)
        within = (places >= 0) & (times < numbers(steps["end_ns"])[found])
        return np.where(within, numbers(steps["step"])[found], NONE)

    def _ops(self) -> pa.Table:
        host = self._host["ops"]
        host = with_column(host, "id", self._host_ids)
        host = with_column(host, "parent", _at(self._host_ids, self._calls.parents))
        forward = rows_of(numbers(self._host["ops"]["id"]), numbers(host["fwd"]))
        host = with_column(host, "fwd", _at(self._host_ids, forward))
        host = with_column(host, "self_ns", self._self_times())
        api = self._device["ops"].take(pa.array(self._api))
        parents = self._parents[self._api]
        durations = numbers(api["dur_ns"])
        columns = {
            "id": self._new_of_device[self._api],
            "parent": _at(self._host_ids, parents),
            "thread": self._threads[self._api],
            "self_ns": durations,
            "depth": np.where(parents != NONE, _at(numbers(self._host["ops"]["depth"]), parents) + 1, 0),
            "step": self._steps(numbers(api["start_ns"])),
            **{name: _at(numbers(self._host["ops"][name]), parents) for name in ("module", "stack")},
            **dict.fromkeys(("seq", "fwd", "fwd_thread", "inputs"), np.full(len(durations), NONE)),
        }
        for name, values in columns.items():
            api = with_column(api, name, values)
        return concat("ops", host, api).take(pa.array(self._order))

    def _self_times(self) -> np.ndarray:
        """The own times of our ops, less those of the API's calls that they made."""
        own = numbers(self._host["ops"]["self_ns"]).copy()
        parents = self._parents[self._api]
        within = parents != NONE
        durations = numbers(self._device["ops"]["dur_ns"])[self._api]
        np.subtract.at(own, parents[within], durations[within])
        return np.asarray(np.maximum(own, 0))

    def _concat(self, name: str, added: pa.Table | None) -> pa.Table:
        table = self._host[name]
        for column in _OP_COLUMNS.get(name, ()):
            if name != "ops":
                old = rows_of(numbers(self._host["ops"]["id"]), numbers(table[column]))
                table = with_column(table, column, _at(self._host_ids, old))
        return table if added is None else concat(name, table, added)

    def _shift_ids(self, added: Tables) -> None:
        """Ids of kernels, collectives and groups begin after those that are there: a run may have several traces."""
        shifts = {}
        for name in ("kernels", "collectives", "process_groups"):
            shifts[name] = first_free(self._host[name])
            added[name] = with_column(added[name], "id", shifted(added[name]["id"], shifts[name]))
        refers = {("kernels", "collective"): "collectives", ("collectives", "kernel"): "kernels"}
        refers |= {("collectives", "group"): "process_groups", ("kernel_counters", "kernel"): "kernels"}
        for (name, column), target in refers.items():
            added[name] = with_column(added[name], column, shifted(added[name][column], shifts[target]))

    def _noted_devices(self) -> pa.Table:
        """The devices of the trace, each with a word on its times."""
        rows = self._device["devices"].to_pylist()
        for row in rows:
            row["note"] = " ".join(filter(None, (row["note"], self._alignment.sentence())))
        return pa.Table.from_pylist(rows, schema=TABLES["devices"].schema)

    def _all_threads(self) -> pa.Table:
        rows = [row for row in self._device["threads"].to_pylist() if row["id"] in self._new_threads]
        rows = [{**row, "id": self._new_threads[row["id"]]} for row in rows]
        return concat("threads", self._host["threads"], pa.Table.from_pylist(rows, schema=TABLES["threads"].schema))


def without_clock_ranges(tables: Mapping[str, pa.Table]) -> Tables:
    """The tables less what was recorded for the clocks alone."""
    if "ops" not in tables:
        return dict(tables)
    ops = tables["ops"]
    dropped = is_clock_range(ops)
    parents = rows_of(numbers(ops["id"]), numbers(ops["parent"]))
    own = numbers(ops["self_ns"]).copy()
    inner = dropped & (parents != NONE)
    np.add.at(own, parents[inner], numbers(ops["dur_ns"])[inner])
    return {**tables, "ops": with_column(ops, "self_ns", own).filter(pa.array(~dropped))}


def _at(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The values at these rows, -1 where there is no row."""
    if not len(values):
        return np.full(len(rows), NONE)
    return np.where(rows != NONE, values[np.maximum(rows, 0)], NONE)
