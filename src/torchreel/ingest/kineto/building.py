"""Columns of a file's events -> the tables of one process of a reel, linked."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pyarrow as pa

from torchreel.ingest.kineto.arguments import value_of
from torchreel.ingest.kineto.calls import Calls
from torchreel.ingest.kineto.collecting import ACTIVITIES, ACTIVITY, KIND, KINDS, Collected
from torchreel.ingest.kineto.collectives import Groups, collectives_of
from torchreel.ingest.kineto.columns import NOTHING, Codes, Ints, column, plain, rows_of, text_column
from torchreel.ingest.kineto.devices import Devices
from torchreel.ingest.kineto.memory import alloc_columns, match_frees

_DIRECTION = re.compile(r"([HDPA])to([HDPA])|(Host|Device)To(Host|Device)")
_SIDES = re.compile(r"\((\w+) -> (\w+)\)")


class Building:
    """Makes the tables of one process."""

    def __init__(self, collected: Collected, top: dict[str, Any]) -> None:
        self._collected = collected
        self._top = top
        self._names = list(collected.names)
        self._base = _base(top)
        self._devices = Devices(collected, top)
        self._memory = collected.memory.taken()
        self._marks = collected.marks.taken()
        self._flows = collected.flows.taken()
        threads = [part["thread"] for part in (self._memory, self._marks, self._flows)]
        times = [part["start"] for part in (self._memory, self._marks, self._flows)]
        self._move_unknown()
        self._calls = Calls(collected, self._names, (np.concatenate(threads), np.concatenate(times)))
        self._texts = collected.names.texts()
        self._kernels = collected.device.taken()
        by_start = np.lexsort((self._kernels["order"], self._kernels["start"]))
        self._kernels = {name: values[by_start] for name, values in self._kernels.items()}
        self._thread_ids = self._number_threads()

    def tables(self) -> dict[str, pa.Table]:
        """All tables but processes."""
        self._link_kernels()
        groups = Groups(self._top.get("distributedInfo"))
        collectives = self._collectives(groups)
        tables = {
            "kernels": self._kernel_table(),
            "device_ranges": self._device_range_table(),
            "syncs": self._sync_table(),
            "allocs": self._alloc_table(),
            "marks": self._mark_table(),
            "flows": self._flow_table(),
            "kernel_counters": self._counter_table(),
            "samples": self._sample_table(),
            "steps": self._step_table(),
            "inputs": self._input_table(),
            "modules": self._calls.modules(),
            "threads": self._thread_table(),
            "process_groups": groups.table(),
            "collectives": collectives,
            "ops": self._op_table(),
            "streams": self._stream_table(),
            "devices": self._devices.table(),
        }
        return {**tables, **self._stack_tables()}

    # Times

    def _absolute(self, times: Ints) -> Ints:
        return np.where(times == NOTHING, NOTHING, times + self._base)

    def extent(self) -> tuple[int, int] | None:
        """When the first event began and the last ended."""
        starts = [self._calls.columns["start"], self._kernels["start"], self._memory["start"], self._marks["start"]]
        ends = [self._calls.end, self._kernels["start"] + self._kernels["dur"], self._memory["start"]]
        begin = [int(each.min()) for each in starts if len(each)] + [begin for begin, _ in self._collected.spans]
        end = [int(each.max()) for each in ends if len(each)] + [end for _, end in self._collected.spans]
        return (min(begin) + self._base, max(end) + self._base) if begin and end else None

    # Calls

    def _move_unknown(self) -> None:
        """Events of an unknown category on a row of a device are activities of it, those on others are calls."""
        collected = self._collected
        keys = collected.threads.keys_by_code()
        devices = {
            code: (key[0], key[1])
            for code, key in keys.items()
            if self._devices.of_pid(key[0], collected) is not None and type(key[0]) is int
        }
        if not devices or not collected.unknown:
            return
        host = collected.host.taken()
        moved = (host["kind"] == KIND["other"]) & np.isin(host["thread"], list(devices))
        rows = int(moved.sum())
        if rows:
            places = [devices[code] for code in host["thread"][moved].tolist()]
            streams = [key[1] if type(key[1]) is int else NOTHING for key in places]
            blank = np.full(rows, np.nan)
            collected.device.add(
                rows,
                device=np.array([key[0] for key in places], np.int64),
                stream=np.array(streams, np.int64),
                kind=ACTIVITY["other"],
                **{name: host[name][moved] for name in ("order", "name", "start", "dur", "external", "correlation")},
                **dict.fromkeys(("blocks_per_sm", "warps_per_sm", "occupancy"), blank),
                args=host["args"][moved],
            )
        collected.host.put({name: host.pop(name)[~moved] for name in list(host)})

    def _number_threads(self) -> Ints:
        """Ids of threads that ran something, by the number that each got while reading; others have none."""
        used = [self._calls.columns["thread"], self._memory["thread"], self._marks["thread"], self._flows["thread"]]
        codes = np.unique(np.concatenate(used))
        ids = np.full(len(self._collected.threads) + 1, NOTHING)
        ids[codes] = np.arange(len(codes))
        self._thread_codes = codes
        return ids

    def _thread_table(self) -> pa.Table:
        keys = self._collected.threads.keys_by_code()
        torch_ids = self._calls.torch_ids
        rows = []
        for number, code in enumerate(self._thread_codes.tolist()):
            pid, tid = keys[code]
            name = self._collected.named(pid, tid, "thread_name")
            match = re.fullmatch(r"thread \S+ \((.*)\)", name or "", re.DOTALL)
            if match:
                name = match[1]
            if name is None:
                name = self._collected.named(pid, 0, "process_name") if tid == 0 or type(tid) is not int else None
                name = name or (tid if type(tid) is str else None)
            rows.append(
                {
                    "id": number,
                    "os_id": tid if type(tid) is int and abs(tid) < 2**63 else None,
                    "torch_id": torch_ids.get(code),
                    "name": None if name is None else plain(name.strip()),
                }
            )
        schema = [("id", pa.int32()), ("os_id", pa.int64()), ("torch_id", pa.int64()), ("name", pa.string())]
        return pa.Table.from_pylist(rows, pa.schema(schema))

    def _op_table(self) -> pa.Table:
        calls, given = self._calls, self._calls.columns
        forward = calls.forward
        linked = np.where(forward < 0, NOTHING, forward)
        forward_thread = np.where(forward < 0, NOTHING, self._thread_ids[given["thread"][np.maximum(forward, 0)]])
        collected = self._collected
        columns = {
            "id": pa.array(np.arange(calls.count)),
            "parent": column(np.where(calls.parent < 0, NOTHING, calls.parent)),
            "thread": column(self._thread_ids[given["thread"]], pa.int32()),
            "name": text_column(given["name"], self._texts),
            "overload": pa.DictionaryArray.from_arrays(pa.array(np.zeros(calls.count, np.int32)), pa.array([""])),
            "kind": text_column(given["kind"], pa.array(KINDS)),
            "start_ns": pa.array(self._absolute(given["start"])),
            "dur_ns": pa.array(given["dur"]),
            "self_ns": pa.array(calls.self_ns),
            "depth": column(calls.depth, pa.int32()),
            "step": column(calls.step, pa.int32()),
            "seq": column(np.where(given["seq"] < 0, NOTHING, given["seq"])),
            "fwd_thread": column(forward_thread, pa.int32()),
            "fwd": column(linked),
            "module": column(calls.module, pa.int32()),
            "stack": column(calls.stack, pa.int32()),
            "inputs": column(given["inputs"], pa.int32()),
            "flops": column(given["flops"]),
            "async": pa.array(np.zeros(calls.count, bool)),
            "open": pa.array(given["open"] > 0),
            "record_id": column(self._record_ids()),
            "script_modules": text_column(given["script"], collected.scripts.texts()),
            "args": text_column(given["args"], collected.args.texts()),
            **self._alloc_sums(),
        }
        return pa.table(columns)

    def _record_ids(self) -> Ints:
        """The number by which an execution trace names a call: External id up to torch 2.1, later its own."""
        given = self._calls.columns
        if (given["record"] != NOTHING).any():
            return np.where(given["record"] <= 0, NOTHING, given["record"])
        return np.where(self._calls.is_op | self._calls.is_range, given["external"], NOTHING)

    def _alloc_sums(self) -> dict[str, pa.Array]:
        """Bytes that calls allocated, if the trace has memory events."""
        if not len(self._memory["start"]):
            return {}
        owner = self._calls.at_moment[: len(self._memory["start"])]
        own = np.zeros(self._calls.count, np.int64)
        size = self._memory["bytes"]
        known = (owner >= 0) & (size != NOTHING)
        np.add.at(own, owner[known], size[known])
        sums = self._calls.sums(np.where(size == NOTHING, 0, size))
        return {"alloc_bytes": pa.array(sums), "self_alloc_bytes": pa.array(own)}

    # Devices

    def _link_kernels(self) -> None:
        calls, kernels = self._calls, self._kernels
        is_launch = (calls.kind == KIND["runtime"]) | (calls.kind == KIND["driver"])
        correlation = np.where(is_launch, calls.columns["correlation"], NOTHING)
        self._launch_correlation = correlation
        launch = rows_of(correlation, kernels["correlation"])
        op_around, range_around = calls.around(calls.is_op), calls.around(calls.is_range)
        around = np.where(op_around < 0, range_around, op_around)
        op = np.where(launch < 0, -1, around[np.maximum(launch, 0)]) if calls.count else launch
        if self.external_ids_are_ops():
            named = np.where(calls.is_op | calls.is_range, calls.columns["external"], NOTHING)
            op = np.where(launch < 0, rows_of(named, kernels["external"]), op)
        kernels |= {"launch": launch, "op": op}

    def external_ids_are_ops(self) -> bool:
        """Whether External id of a device's activity names the op: in some versions it is the correlation again."""
        calls, kernels = self._calls, self._kernels
        is_launch = (calls.kind == KIND["runtime"]) | (calls.kind == KIND["driver"])
        for external, correlation in (
            (calls.columns["external"][is_launch], calls.columns["correlation"][is_launch]),
            (kernels["external"], kernels["correlation"]),
        ):
            both = (external != NOTHING) & (correlation != NOTHING)
            if both.any():
                return bool((external[both] != correlation[both]).any())
        return False

    def _kernel_table(self) -> pa.Table:
        calls, given = self._calls, self._kernels
        launch, op = given["launch"], given["op"]
        source = np.where(launch < 0, op, launch)  # what knows the step and the module
        known = source >= 0
        step = calls.step[np.maximum(source, 0)] if calls.count else source
        module = calls.module[np.maximum(source, 0)] if calls.count else source
        direction, sides = self._directions()
        collective = np.full(len(launch), NOTHING)
        for kernel, number in self._collective_of.items():
            collective[kernel] = number
        columns = {
            "id": pa.array(np.arange(len(launch))),
            "device": _texts(self._devices.names(given["device"])),
            "stream": column(given["stream"]),
            "name": text_column(given["name"], self._texts),
            "start_ns": pa.array(self._absolute(given["start"])),
            "dur_ns": pa.array(given["dur"]),
            "op": column(np.where(op < 0, NOTHING, op)),
            "kind": text_column(given["kind"], pa.array(ACTIVITIES)),
            "launch": column(np.where(launch < 0, NOTHING, launch)),
            "correlation": column(given["correlation"]),
            "context": column(given["context"]),
            "graph": column(np.where(given["graph"] == 0, NOTHING, given["graph"])),
            "graph_node": column(np.where(given["graph"] == 0, NOTHING, given["graph_node"])),
            "grid": self._shape_column(given["grid"]),
            "block": self._shape_column(given["block"]),
            "registers": column(given["registers"], pa.int32()),
            "shared_bytes": column(given["shared_bytes"]),
            "bytes": column(given["bytes"]),
            "direction": direction,
            "source": sides[0],
            "target": sides[1],
            "collective": column(collective),
            "step": column(np.where(known, step, NOTHING), pa.int32()),
            "module": column(np.where(known, module, NOTHING), pa.int32()),
            "args": text_column(given["args"], self._collected.args.texts()),
        }
        for name in ("blocks_per_sm", "warps_per_sm", "occupancy"):
            columns[name] = pa.array(given[name], pa.float64(), mask=np.isnan(given[name]))
        return pa.table(columns)

    def _directions(self) -> tuple[pa.Array, tuple[pa.Array, pa.Array]]:
        """From where to where copies go, as their names say it."""
        copies = self._kernels["kind"] == ACTIVITY["copy"]
        codes = np.where(copies, self._kernels["name"], NOTHING)
        said = {code: _copy(self._names[code]) for code in set(codes[copies].tolist())}
        none = (None, None, None)
        rows = [said.get(code, none) for code in codes.tolist()]
        return _texts([row[0] for row in rows]), (_texts([row[1] for row in rows]), _texts([row[2] for row in rows]))

    def _shape_column(self, codes: Ints) -> pa.Array:
        shapes = pa.array([_shape(raw) for raw in self._collected.shapes], pa.list_(pa.int32()))
        missing = codes < 0
        return shapes.take(pa.array(np.where(missing, 0, codes), mask=missing))

    def _device_range_table(self) -> pa.Table:
        given = self._collected.ranges.taken()
        calls = self._calls
        named = np.where(calls.is_range, calls.columns["external"], NOTHING)
        op = rows_of(named, given["external"])
        return pa.table(
            {
                "device": _texts(self._devices.names(given["device"])),
                "stream": column(given["stream"]),
                "name": text_column(given["name"], self._texts),
                "start_ns": pa.array(self._absolute(given["start"])),
                "dur_ns": pa.array(given["dur"]),
                "op": column(np.where(op < 0, NOTHING, op)),
            }
        )

    def _sync_table(self) -> pa.Table:
        given = self._collected.syncs.taken()
        launch = rows_of(self._launch_correlation, given["correlation"])
        event = rows_of(self._launch_correlation, given["wait_on_correlation"])
        return pa.table(
            {
                "device": _texts(self._devices.names(given["device"])),
                "stream": column(given["stream"]),
                "kind": text_column(given["name"], self._texts),
                "start_ns": pa.array(self._absolute(given["start"])),
                "dur_ns": pa.array(given["dur"]),
                "launch": column(np.where(launch < 0, NOTHING, launch)),
                "wait_on_stream": column(np.where(given["wait_on_stream"] < 0, NOTHING, given["wait_on_stream"])),
                "wait_on_event": column(given["wait_on_event"]),
                "wait_on_launch": column(np.where(event < 0, NOTHING, event)),
            }
        )

    def _stream_table(self) -> pa.Table:
        pairs: Codes = Codes()
        for device, stream in zip(self._kernels["device"].tolist(), self._kernels["stream"].tolist(), strict=True):
            pairs[device, stream]
        known = sorted(pair for pair in pairs if NOTHING not in pair)
        names = [self._collected.named(device, stream, "thread_name") for device, stream in known]
        return pa.table(
            {
                "device": _texts(self._devices.names(np.array([device for device, _ in known], np.int64))),
                "stream": pa.array([stream for _, stream in known], pa.int64()),
                "name": _texts([None if name is None else plain(name.strip()) for name in names]),
            }
        )

    def _collectives(self, groups: Groups) -> pa.Table:
        calls, kernels = self._calls, self._kernels
        order = calls.columns["order"]
        noted = self._collected.collectives
        rows = np.flatnonzero(np.isin(order, list(noted))) if noted else np.empty(0, np.int64)
        ops = [(row, int(calls.columns["start"][row]) + self._base, noted[int(order[row])]) for row in rows.tolist()]
        mask = np.zeros(calls.count, bool)
        mask[rows] = True
        holder = calls.around(mask) if calls.count else rows
        found = []
        for row in np.flatnonzero(kernels["kind"] == ACTIVITY["communication"]).tolist():
            launch, start = int(kernels["launch"][row]), int(kernels["start"][row])
            op = int(holder[launch]) if launch >= 0 else -1
            if op < 0 and kernels["op"][row] >= 0 and mask[kernels["op"][row]]:
                op = int(kernels["op"][row])
            launched = int(calls.columns["start"][launch]) if launch >= 0 else start
            begin, end = start + self._base, start + int(kernels["dur"][row]) + self._base
            args = self._collected.kernel_collectives.get(int(kernels["order"][row]))
            found.append((row, op if op >= 0 else None, launched + self._base, begin, end, args))
        table, self._collective_of = collectives_of(ops, found, groups)
        return table

    # Memory, marks, flows, counters

    def _alloc_table(self) -> pa.Table:
        given = self._memory
        count = len(given["start"])
        devices = self._devices.of_memory(given["type"], given["index"])
        owner = self._calls.at_moment[:count]
        oom = np.array([name == "[OutOfMemory]" for name in self._names] or [False])[given["name"]]
        order, columns = alloc_columns(given, devices, oom)
        stack = np.where(given["stack"] < 0, NOTHING, self._calls.written[np.maximum(given["stack"], 0)])
        if self._calls.count:
            stack = np.where((stack == NOTHING) & (owner >= 0), self._calls.stack[np.maximum(owner, 0)], stack)
        columns |= {
            "time_ns": pa.array(self._absolute(given["start"])[order]),
            "thread": column(self._thread_ids[given["thread"]][order], pa.int32()),
            "op": column(np.where(owner < 0, NOTHING, owner)[order]),
            "stack": column(stack[order], pa.int32()),
        }
        columns["alloc"] = match_frees(columns)
        return pa.table(columns)

    def _mark_table(self) -> pa.Table:
        given, first = self._marks, len(self._memory["start"])
        owner = self._calls.at_moment[first : first + len(given["start"])]
        return pa.table(
            {
                "thread": column(self._thread_ids[given["thread"]], pa.int32()),
                "time_ns": pa.array(self._absolute(given["start"])),
                "name": text_column(given["name"], self._texts),
                "op": column(np.where(owner < 0, NOTHING, owner)),
            }
        )

    def _flow_table(self) -> pa.Table:
        given, first = self._flows, len(self._memory["start"]) + len(self._marks["start"])
        owner = self._calls.at_moment[first:]
        return pa.table(
            {
                "id": column(given["id"]),
                "name": text_column(given["name"], self._texts),
                "end": _texts(["out" if out else "in" for out in given["out"].tolist()]),
                "thread": column(self._thread_ids[given["thread"]], pa.int32()),
                "time_ns": pa.array(self._absolute(given["start"])),
                "op": column(np.where(owner < 0, NOTHING, owner)),
            }
        )

    def _counter_table(self) -> pa.Table:
        rows = self._collected.counters
        return pa.table(
            {
                "range": _texts([plain(row[0]) for row in rows]),
                "start_ns": pa.array([row[1] + self._base for row in rows], pa.int64()),
                "dur_ns": pa.array([row[2] for row in rows], pa.int64()),
                "name": _texts([plain(row[3]) for row in rows]),
                "value": pa.array([row[4] for row in rows], pa.float64()),
            }
        )

    def _sample_table(self) -> pa.Table:
        rows = self._collected.samples
        names = {pid: self._devices.of_pid(pid, self._collected) for pid in {row[1] for row in rows}}
        return pa.table(
            {
                "time_ns": pa.array([row[0] + self._base for row in rows], pa.int64()),
                "device": _texts([names[row[1]] for row in rows]),
                "name": _texts([plain(row[2]) for row in rows]),
                "value": pa.array([row[3] for row in rows], pa.float64()),
            }
        )

    def _step_table(self) -> pa.Table:
        steps = self._calls.steps
        return pa.table(
            {
                "step": pa.array([step.number for step in steps], pa.int32()),
                "start_ns": pa.array([step.start + self._base for step in steps], pa.int64()),
                "end_ns": pa.array([step.end + self._base for step in steps], pa.int64()),
            }
        )

    # Inputs and stacks

    def _input_table(self) -> pa.Table:
        rows = list(self._collected.inputs)
        columns: dict[str, Any] = {"id": pa.array(np.arange(len(rows), dtype=np.int32))}
        for place, name in enumerate(("dims", "strides", "dtypes", "scalars")):
            texts = {raw: _json(raw) for raw in {row[place] for row in rows}}
            columns[name] = pa.array([texts[row[place]] for row in rows], pa.string())
        return pa.table(columns)

    def _stack_tables(self) -> dict[str, pa.Table]:
        frames, stacks = list(self._calls.frames), list(self._calls.stacks)
        return {
            "stacks": pa.table(
                {
                    "id": pa.array(np.arange(len(stacks), dtype=np.int32)),
                    "frames": pa.array(stacks, pa.list_(pa.int32())),
                }
            ),
            "frames": pa.table(
                {
                    "id": pa.array(np.arange(len(frames), dtype=np.int32)),
                    "file": _texts([plain(file) for file, _, _ in frames]),
                    "line": pa.array([line for _, line, _ in frames], pa.int32()),
                    "function": _texts([plain(function) for _, _, function in frames]),
                }
            ),
        }


def _base(top: dict[str, Any]) -> int:
    base = top.get("baseTimeNanoseconds")
    if type(base) is str and base.isdecimal() and len(base) < 19:
        base = int(base)
    return base if type(base) is int and 0 <= base < 2**62 else 0


def _texts(values: list[str | None] | list[str]) -> pa.DictionaryArray:
    return pa.array(values, pa.string()).dictionary_encode()


def _copy(name: str) -> tuple[str | None, str | None, str | None]:
    """Direction, source and target of a copy of this name: Memcpy HtoD (Pageable -> Device)."""
    direction = _DIRECTION.search(name)
    sides = _SIDES.search(name)
    ends = [each[0] for each in direction.groups() if each] if direction else []
    said = "to".join(ends) if ends else None
    return said, sides[1] if sides else None, sides[2] if sides else None


def _shape(raw: bytes) -> list[int] | None:
    from msgspec import Raw

    value = value_of(Raw(raw))
    if type(value) is list and all(type(each) is int and 0 <= each < 2**31 for each in value):
        return value
    return None


def _json(raw: bytes) -> str | None:
    from msgspec import Raw

    value = value_of(Raw(raw)) if raw else None
    return plain(json.dumps(value)) if type(value) is list else None
