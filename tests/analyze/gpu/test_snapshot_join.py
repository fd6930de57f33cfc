"""A snapshot and a trace of one run, joined by the blocks that both saw."""

from __future__ import annotations

from pathlib import Path

from tests.analyze.gpu.traces import Trace
from torchreel.analyze.gpu.snapshot_join import snapshot_join


def event(trace: Trace, action: str, addr: int, size: int, time: int | None, **row: int) -> None:
    number = len(trace.tables.get("allocs", []))
    trace.add("allocs", id=number, time_ns=time, device="cuda:0", action=action, addr=addr, size=size, **row)


def pair(times: bool = True) -> tuple[Trace, Trace]:
    """The snapshot began earlier, and has one more block at address 4096; its sizes are those that were asked for."""
    trace, snapshot = Trace(), Trace()
    trace.call("aten::mm", 100, 200)
    trace.call("aten::relu", 300, 400)
    for action, addr, size, time, op in (
        ("alloc", 4096, 512, 150, 0),
        ("alloc", 8192, 1024, 350, 1),
        ("free", 4096, 512, 390, 1),
    ):
        event(trace, action, addr, size, time if times else None, op=op)
    for line in (3, 7, 9):
        snapshot.call("", 0, 1, line=line)
    event(snapshot, "alloc", 4096, 400, 20 if times else None, stack=0)
    event(snapshot, "segment_alloc", 4096, 2**21, 19, stack=0)
    event(snapshot, "alloc", 4096, 500, 149 if times else None, stack=1)
    event(snapshot, "alloc", 8192, 1000, 351 if times else None, stack=2)
    event(snapshot, "free_requested", 4096, 500, 391 if times else None, stack=2)
    event(snapshot, "free_completed", 4096, 500, 392 if times else None, stack=2)
    return trace, snapshot


def test_stacks_for_the_trace_and_ops_for_the_snapshot(tmp_path: Path) -> None:
    trace, snapshot = pair()
    found = snapshot_join(trace.write(tmp_path / "x.reel"), snapshot.write(tmp_path / "y.reel"))
    assert [
        (row["action"], row["addr"], row["size"], row["snapshot_alloc"], row["op"], row["line"])
        for row in found.rows.to_pylist()
    ] == [
        ("alloc", 4096, 512, 2, "aten::mm", "me/train.py:7 main"),
        ("alloc", 8192, 1024, 3, "aten::relu", "me/train.py:9 main"),
        ("free", 4096, 512, 4, "aten::relu", "me/train.py:9 main"),
    ]
    assert (found.matched, found.trace_events, found.snapshot_events) == (3, 3, 4)
    assert found.notes == ("3 of 3 events of the trace are in the snapshot, which has 4.",)


def test_without_times_what_is_not_sure_stays_alone(tmp_path: Path) -> None:
    trace, snapshot = pair(times=False)
    found = snapshot_join(trace.write(tmp_path / "x.reel"), snapshot.write(tmp_path / "y.reel"))
    assert [row["addr"] for row in found.rows.to_pylist()] == [8192, 4096]
    assert found.notes == ("2 of 3 events of the trace are in the snapshot, which has 4.",)


def test_a_trace_that_has_more_than_the_snapshot(tmp_path: Path) -> None:
    trace, snapshot = Trace(), Trace()
    for time in (10, 20, 30, 40):
        event(trace, "alloc", 512, 512, time)
    for time in (21, 29):
        event(snapshot, "alloc", 512, 512, time)
    found = snapshot_join(trace.write(tmp_path / "x.reel"), snapshot.write(tmp_path / "y.reel"))
    assert [(row["trace_alloc"], row["snapshot_alloc"]) for row in found.rows.to_pylist()] == [(1, 0), (2, 1)]


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    nothing = Trace()
    nothing.call("aten::mm", 0, 1)
    empty = nothing.write(tmp_path / "x.reel")
    trace, _ = pair()
    full = trace.write(tmp_path / "y.reel")
    assert [len(snapshot_join(one, other).notes) for one, other in ((empty, empty), (empty, full), (full, empty))] == [
        2,
        1,
        1,
    ]
    other = Trace()
    event(other, "alloc", 1 << 30, 512, 5)
    assert snapshot_join(full, other.write(tmp_path / "z.reel")).notes == (
        "0 of 3 events of the trace are in the snapshot, which has 1.",
        "No block has the same address and size in both: they are not of one run, or not of one rank.",
    )
