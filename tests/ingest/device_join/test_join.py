"""The tables of both halves become those of one process."""

from __future__ import annotations

from tests.ingest.device_join.halves import call, mark, tables
from torchreel.ingest.device_join.join import join_device, without_clock_ranges

HOST = {
    "threads": [{"id": 0, "os_id": 500}, {"id": 1, "os_id": 501}],
    "steps": [{"step": 3, "start_ns": 0, "end_ns": 5_000}, {"step": 4, "start_ns": 5_000, "end_ns": 9_000}],
    "ops": [
        mark(0, 0, 10, 20),
        call(1, "train", 100, 8_000, kind="range"),
        call(2, "aten::linear", 1_000, 3_000, parent=1, depth=1, module=7, stack=9, self_ns=1_000),
        call(3, "aten::addmm", 1_500, 2_500, parent=2, depth=2, module=7, stack=9),
        call(4, "AddmmBackward0", 5_000, 7_000, thread=1, fwd=2, module=7, kind="backward"),
    ],
    "allocs": [{"id": 0, "op": 3, "action": "alloc", "size": 8}],
    "counters": [{"op": 4, "name": "cycles", "value": 1}],
}
# The device's clock is 1,000,000 ns ahead, and its thread 77 is our 501: within that one's ops it calls.
AHEAD = 1_000_000
DEVICE = {
    "threads": [{"id": 0, "os_id": 500}, {"id": 1, "os_id": 77}, {"id": 2, "os_id": 78, "name": "watchdog"}],
    "ops": [
        mark(0, 0, AHEAD + 10, AHEAD + 20),
        call(1, "train", AHEAD + 105, AHEAD + 7_990, kind="range"),
        call(2, "cudaLaunchKernel", AHEAD + 1_600, AHEAD + 1_800, kind="runtime", args='{"correlation": 5}'),
        *(call(3 + n, "cudaLaunchKernel", AHEAD + at, AHEAD + at + 100, kind="runtime", thread=1) for n, at in
          enumerate((5_100, 5_300, 5_500))),
        call(6, "cudaEventQuery", AHEAD + 4_000, AHEAD + 4_100, kind="runtime", thread=2),
        call(7, "cudaMemcpyAsync", AHEAD + 200, AHEAD + 300, kind="runtime"),
    ],
    "kernels": [
        {"id": 0, "device": "cuda:0", "stream": 7, "name": "gemm", "start_ns": AHEAD + 2_000, "dur_ns": 5, "launch": 2},
        {"id": 1, "device": "cuda:0", "stream": 7, "name": "old", "start_ns": AHEAD + 50, "dur_ns": 5},
        {"id": 2, "device": "cuda:0", "stream": 7, "name": "grad", "start_ns": AHEAD + 5_200, "dur_ns": 5, "launch": 3},
        {"id": 3, "device": "cuda:0", "stream": 7, "name": "copy", "start_ns": AHEAD + 400, "dur_ns": 5, "launch": 7},
    ],
    "device_ranges": [{"device": "cuda:0", "stream": 7, "name": "train", "start_ns": AHEAD + 9, "dur_ns": 5, "op": 1}],
    "syncs": [{"device": "cuda:0", "kind": "Event Sync", "start_ns": 0, "dur_ns": 1, "launch": 6, "wait_on_launch": 2}],
}  # fmt: skip


def ops_of(joined):
    return {row["id"]: row for row in joined.tables["ops"].to_pylist()}


def test_calls_of_the_api_lie_within_the_ops_that_made_them():
    joined = join_device(tables(**HOST), tables(**DEVICE))
    ops = ops_of(joined)
    assert list(ops) == list(range(11))
    starts = [10, 100, 200, 1_000, 1_500, 1_600, 4_000, 5_000, 5_100, 5_300, 5_500]
    assert [row["start_ns"] for row in ops.values()] == starts
    launch = ops[5]
    assert (launch["name"], launch["parent"], launch["depth"], launch["step"]) == ("cudaLaunchKernel", 4, 3, 3)
    assert (launch["module"], launch["stack"], launch["args"]) == (7, 9, '{"correlation": 5}')
    assert ops[4]["self_ns"] == 1_000 - 200


def test_kernels_know_op_launch_step_and_module():
    joined = join_device(tables(**HOST), tables(**DEVICE))
    ops = ops_of(joined)
    kernels = {row["name"]: row for row in joined.tables["kernels"].to_pylist()}
    known = {
        name: (row["op"] and ops[row["op"]]["name"], row["launch"] and ops[row["launch"]]["name"], row["step"])
        for name, row in kernels.items()
    }
    assert known["gemm"] == ("aten::addmm", "cudaLaunchKernel", 3)
    assert known["old"] == (None, None, None)
    assert known["grad"] == ("AddmmBackward0", "cudaLaunchKernel", 4)
    assert known["copy"] == ("train", "cudaMemcpyAsync", 3)
    assert [row["module"] for row in kernels.values()] == [7, None, 7, None]
    assert kernels["gemm"]["start_ns"] == 2_000
    assert (joined.kernels, joined.unlaunched, joined.outside) == (4, 1, 0)


def test_a_thread_without_a_number_of_the_system_is_known_by_its_ops_and_a_stranger_stays_one():
    joined = join_device(tables(**HOST), tables(**DEVICE))
    threads = {row["id"]: row for row in joined.tables["threads"].to_pylist()}
    assert [row["os_id"] for row in threads.values()] == [500, 501, 78]
    by_name = {row["name"]: row for row in joined.tables["ops"].to_pylist()}
    assert threads[by_name["cudaEventQuery"]["thread"]]["name"] == "watchdog"
    assert (by_name["cudaEventQuery"]["parent"], joined.strange_threads) == (None, 1)


def test_all_that_refers_to_ops_follows_their_new_ids():
    joined = join_device(tables(**HOST), tables(**DEVICE))
    ops = ops_of(joined)
    (alloc,) = joined.tables["allocs"].to_pylist()
    (counter,) = joined.tables["counters"].to_pylist()
    (device_range,) = joined.tables["device_ranges"].to_pylist()
    (sync,) = joined.tables["syncs"].to_pylist()
    backward = ops[counter["op"]]
    assert (ops[alloc["op"]]["name"], backward["name"]) == ("aten::addmm", "AddmmBackward0")
    assert ops[backward["fwd"]]["name"] == "aten::linear"
    assert ops[device_range["op"]]["name"] == "train"
    assert (ops[sync["launch"]]["name"], ops[sync["wait_on_launch"]]["start_ns"]) == ("cudaEventQuery", 1_600)


def test_ranges_for_the_clocks_are_taken_out():
    joined = join_device(tables(**HOST), tables(**DEVICE))
    left = without_clock_ranges(joined.tables)["ops"].to_pylist()
    assert [row["id"] for row in left] == list(range(1, 11))
    assert not [row for row in left if row["name"].startswith("torchreel")]
    assert (joined.alignment.offset_ns, joined.alignment.error_ns) == (-AHEAD, 10)


def test_devices_say_how_their_times_were_moved():
    host = {**HOST, "devices": [{"device": "cpu"}, {"device": "cuda:0", "lost_events": 3}]}
    device = {**DEVICE, "devices": [{"device": "cuda:0", "model": "H100"}]}
    cpu, cuda = join_device(tables(**host), tables(**device)).tables["devices"].to_pylist()
    assert (cpu["device"], cpu["note"], cuda["model"], cuda["lost_events"]) == ("cpu", None, "H100", 3)
    said = "Its times were moved by -1000000 ns (drift 0.0 ppm) to the host's clock, with an error of at most 10 ns."
    assert cuda["note"] == said


def test_a_second_trace_is_joined_to_what_the_first_gave():
    once = join_device(tables(**HOST), tables(**DEVICE)).tables
    later = {**DEVICE, "ops": [row for row in DEVICE["ops"] if row["id"] == 7]}
    later["ops"] = [mark(0, 0, 10 - 7, 20 - 7), *({**row, "start_ns": 6_200 - 7} for row in later["ops"])]
    later["kernels"] = [{**DEVICE["kernels"][3], "start_ns": 6_500 - 7}]
    del later["device_ranges"], later["syncs"]
    twice = join_device(once, tables(**later))
    kernels = twice.tables["kernels"].to_pylist()
    assert [row["id"] for row in kernels] == [0, 1, 2, 3, 7]
    ops = ops_of(twice)
    assert [ops[row["launch"]]["name"] if row["launch"] is not None else None for row in kernels] == [
        *("cudaLaunchKernel", None, "cudaLaunchKernel", "cudaMemcpyAsync", "cudaMemcpyAsync")
    ]
    assert (ops[kernels[4]["op"]]["name"], kernels[4]["start_ns"]) == ("train", 6_500)


def test_a_half_without_anything_changes_nothing_but_ids():
    joined = join_device(tables(**HOST), {})
    assert [row["name"] for row in joined.tables["ops"].to_pylist()] == [
        *("torchreel: clock 0", "train", "aten::linear", "aten::addmm", "AddmmBackward0")
    ]
    assert (joined.kernels, joined.alignment.error_ns) == (0, None)
