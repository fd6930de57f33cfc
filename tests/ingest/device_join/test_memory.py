"""The history of a device's allocator is joined to the ops of its run."""

from __future__ import annotations

import pyarrow.compute as pc

from tests.ingest.device_join.halves import call, tables
from tests.snapshots import snapshot
from torchreel.ingest import read_snapshot
from torchreel.ingest.device_join.memory import join_history

HOST = {
    "ops": [
        call(0, "loop", 0, 100_000, kind="range"),
        call(1, "aten::mm", 10_000, 20_000, parent=0, depth=1),
        call(2, "aten::empty", 11_000, 13_000, parent=1, depth=2),
        call(3, "backward", 50_000, 60_000, thread=1),
        call(4, "aten::add", 55_000, 58_000),
    ],
    "frames": [{"id": 0, "file": "a.py", "line": 1, "function": "f"}],
    "stacks": [{"id": 0, "frames": [0]}],
    "allocs": [{"id": 0, "device": "cpu", "action": "alloc", "size": 1, "stack": 0}],
    "devices": [{"device": "cpu"}],
}


def event(id, time_us, **fields):
    return {"id": id, "time_ns": None if time_us is None else time_us * 1_000, "device": "cuda:0", "stack": 1, **fields}


HISTORY = {
    "allocs": [
        event(0, 12, action="alloc", size=512),
        event(1, 15, action="alloc", size=512),
        event(2, 30, action="free", size=512, alloc=0),  # within a range alone
        event(3, 56, action="alloc", size=8),  # two threads
        event(4, 51, action="alloc", size=8),
        event(5, None, action="alloc", size=8),
    ],
    "blocks": [{"device": "cuda:0", "alloc": 1, "stack": 1}],
    "frames": [{"id": 0, "file": "b.py", "line": 2, "function": "g"}, {"id": 1, "file": "b.py", "line": 3}],
    "stacks": [{"id": 0, "frames": []}, {"id": 1, "frames": [1, 0]}],
    "devices": [{"device": "cuda:0", "total": 99}],
}


def test_an_event_belongs_to_the_operator_that_was_open_alone():
    joined = join_history(tables(**HOST), tables(**HISTORY))
    rows = [row for row in joined.tables["allocs"].to_pylist() if row["device"] == "cuda:0"]
    assert [row["op"] for row in rows] == [2, 1, None, None, 3, None]
    assert (joined.events, joined.placed, joined.ambiguous) == (6, 3, 1)


def test_ids_of_both_go_on_and_still_mean_the_same():
    joined = join_history(tables(**HOST), tables(**HISTORY)).tables
    assert joined["allocs"]["id"].to_pylist() == [0, 1, 2, 3, 4, 5, 6]
    assert [row["alloc"] for row in joined["allocs"].to_pylist()] == [None, None, None, 1, None, None, None]
    assert joined["blocks"].to_pylist()[0]["alloc"] == 2
    assert joined["stacks"].to_pylist()[2] == {"id": 2, "frames": [2, 1]}
    assert {row["stack"] for row in joined["allocs"].to_pylist()[1:]} == {2}
    assert joined["devices"]["device"].to_pylist() == ["cpu", "cuda:0"]


def test_a_real_history_is_kept_whole():
    history = read_snapshot(snapshot("lm4_train_ctx100"))
    first = pc.min(history["allocs"]["time_ns"]).as_py()
    host = {"ops": [call(0, "aten::linear", first, first + 10**9)], "threads": [{"id": 0, "os_id": 1}]}
    joined = join_history(tables(**host), history)
    for name in ("allocs", "segments", "blocks", "stacks", "frames", "annotations", "settings"):
        assert joined.tables[name].num_rows == history[name].num_rows
    times = joined.tables["allocs"]["time_ns"]
    within = pc.sum(pc.less(times, first + 10**9)).as_py()
    assert (joined.events, joined.placed) == (11_300, within)
