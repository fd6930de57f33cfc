from __future__ import annotations

from pathlib import Path

import pytest

from tests.export.chrome.test_chrome import UNUSUAL, device_reel, overlapping_reel, rpc_reel, unusual_reel
from tests.export.perfetto_oracle import Oracle
from tests.export.reels import EPOCH, ProcessBuilder, build, training_step
from torchreel.export import export
from torchreel.export.timeline.nesting import MAX_DEPTH
from torchreel.reel import Reel

pytestmark = pytest.mark.browser


def load(oracle: Oracle, reel: Reel, path: Path) -> None:
    """Export, load, and see that every op arrived as a slice and nothing was complained of."""
    export(reel, path, "perfetto")
    oracle.load(path)
    assert oracle.problems() == []
    ops = reel.sql("SELECT count(*) AS n FROM ops")["n"][0].as_py()
    kinds = "'cpu_op', 'user_annotation', 'python_function'"
    assert oracle.value(f"SELECT count(*) FROM slice WHERE category IN ({kinds})") == ops
    assert oracle.value("SELECT count(*) FROM slice WHERE dur < 0") == 0


def test_perfetto_shows_all_of_a_step(tmp_path: Path, oracle: Oracle) -> None:
    process = ProcessBuilder("a-100", 100)
    training_step(process)
    load(oracle, build(tmp_path / "r.reel", process), tmp_path / "out.pftrace")
    rows = oracle.query(
        f"SELECT s.ts - {EPOCH} AS start, s.dur, s.depth, s.category, s.name, p.name AS parent FROM slice s "
        "LEFT JOIN slice p ON p.id = s.parent_id ORDER BY s.ts"
    )
    outer = "autograd::engine::evaluate_function: AddmmBackward0"
    assert [tuple(row.values()) for row in rows] == [
        (0, 90_000, 0, "step", "step 0", None),
        (1_000, 89_000, 0, "user_annotation", "train step", None),
        (2_000, 18_000, 1, "cpu_op", "aten::linear", "train step"),
        (3_000, 16_000, 2, "cpu_op", "aten::addmm", "aten::linear"),
        (21_000, 0, 1, "mark", "forward done", "train step"),
        (30_000, 20_000, 0, "cpu_op", outer, None),
        (31_000, 18_000, 1, "cpu_op", "AddmmBackward0", outer),
        (60_000, 10_000, 1, "python_function", "nn.Module: Linear_0", "train step"),
        (61_000, 8_000, 2, "python_function", "model.py(12): forward", "nn.Module: Linear_0"),
    ]
    assert oracle.flows() == [("aten::linear", outer)]
    args = oracle.query(
        "SELECT flat_key, coalesce(string_value, int_value) AS value FROM args JOIN slice USING (arg_set_id) "
        "WHERE slice.name = 'aten::linear' ORDER BY flat_key"
    )
    assert {row["flat_key"]: row["value"] for row in args} == {
        "debug.Concrete Inputs": '["", ""]',
        "debug.Input Dims": "[[2, 4], [4, 4]]",
        "debug.Input Strides": "[[4, 1], [4, 1]]",
        "debug.Input type": '["float", "float"]',
        "debug.Call stack": "model.py(12): Model.forward;train.py(3): <module>",
        "debug.Module Hierarchy": "Model.linear",
        "debug.FLOPs": 64,
    }
    counter = oracle.query("SELECT value, t.name FROM counter JOIN counter_track t ON t.id = track_id ORDER BY ts")
    assert [row["value"] for row in counter] == [64, 192, 224, 192]
    assert {row["name"] for row in counter} == {"bytes allocated on cpu"}
    threads = oracle.query("SELECT tid, thread.name FROM thread JOIN process USING (upid) WHERE pid = 100 ORDER BY tid")
    assert [tuple(row.values()) for row in threads] == [
        (100, "thread 100 (MainThread)"),
        (101, "thread 101 (autograd)"),
    ]


def test_pain_8_perfetto_drops_nothing_that_overlaps(tmp_path: Path, oracle: Oracle) -> None:
    load(oracle, overlapping_reel(tmp_path / "r.reel"), tmp_path / "out.pftrace")
    rows = oracle.query(
        "SELECT s.name, s.depth, p.name AS parent, t.name AS track FROM slice s "
        "LEFT JOIN slice p ON p.id = s.parent_id JOIN track t ON t.id = s.track_id "
        "WHERE s.name NOT LIKE 'deep%' ORDER BY s.ts, s.id"
    )
    assert {row["name"]: tuple(row.values())[1:] for row in rows} == {
        "ProfilerStep#0": (0, None, None),
        "across the step": (0, None, "thread 100 (overlapping ranges)"),
        "request 0": (0, None, "thread 100 (overlapping ranges)"),
        **{f"request {n}": (0, None, f"thread 100 (overlapping ranges {n + 1})") for n in range(1, 5)},
        "aten::mm": (1, "ProfilerStep#0", None),
        "first": (2, "aten::mm", None),
        "as long": (2, "aten::mm", None),
        "last": (2, "aten::mm", None),
        "in the last": (3, "last", None),
        "aten::add": (1, "ProfilerStep#0", None),
    }
    deep = oracle.query(
        "SELECT max(depth) AS depth, count(*) AS n FROM slice WHERE name LIKE 'deep%' GROUP BY track_id"
    )
    assert sorted(tuple(row.values()) for row in deep) == [(199, 200), (MAX_DEPTH - 1, MAX_DEPTH)]


def test_pain_9_names_of_any_kind_reach_perfetto(tmp_path: Path, oracle: Oracle) -> None:
    load(oracle, unusual_reel(tmp_path / "r.reel"), tmp_path / "out.pftrace")
    rows = oracle.query("SELECT name FROM slice WHERE category = 'user_annotation' ORDER BY ts")
    # SQLite ends a text at its first NUL, and an empty name is no name.
    assert [row["name"] or "" for row in rows] == [name.split("\x00")[0] for name in UNUSUAL]


def test_remote_calls_between_processes_with_one_number(tmp_path: Path, oracle: Oracle) -> None:
    load(oracle, rpc_reel(tmp_path / "r.reel"), tmp_path / "out.pftrace")
    assert oracle.flows() == [("rpc_async#f(w0 -> w1)", "rpc_sync#f(w0 -> w1)#remote_op: aten::mm")]
    processes = oracle.query("SELECT name FROM process WHERE pid > 0 ORDER BY pid")
    assert [row["name"] for row in processes] == ["rank 0: python", "rank 1: python"]


def test_device_activity(tmp_path: Path, oracle: Oracle) -> None:
    load(oracle, device_reel(tmp_path / "r.reel"), tmp_path / "out.pftrace")
    rows = oracle.query(
        "SELECT s.name, s.category, t.name AS track, p.name AS parent FROM slice s JOIN track t ON t.id = s.track_id "
        "JOIN track p ON p.id = t.parent_id ORDER BY s.ts"
    )
    assert [tuple(row.values()) for row in rows] == [
        ("gemm", "kernel", "stream 7", "GPU 0"),
        ("Memcpy HtoD", "gpu_memcpy", "stream 7", "GPU 0"),
        ("Memset (Device)", "gpu_memset", "stream 8", "GPU 0"),
    ]
    assert oracle.flows() == [("aten::mm", "gemm")]


def test_hardware_counters_are_arguments(tmp_path: Path, oracle: Oracle) -> None:
    process = ProcessBuilder("a-100", 100)
    counted = process.op("aten::mm", 0, 10)
    process.op("aten::mm", 10, 20)
    process.add("counters", op=counted, name="cycles", value=300)
    load(oracle, build(tmp_path / "r.reel", process), tmp_path / "out.pftrace")
    rows = oracle.query("SELECT flat_key, int_value FROM args JOIN slice USING (arg_set_id)")
    assert [tuple(row.values()) for row in rows] == [("debug.cycles", 300)]


def test_more_than_one_batch(tmp_path: Path, oracle: Oracle) -> None:
    process = ProcessBuilder("a-100", 100)
    step = process.range("all", 0, 1_000_000)
    for index in range(20_000):
        process.op(f"op {index % 7}", 40 * index, 40 * index + 30, parent=step)
    load(oracle, build(tmp_path / "r.reel", process), tmp_path / "out.pftrace")
    rows = oracle.query("SELECT name, depth, count(*) AS n, sum(dur) AS ns FROM slice GROUP BY 1, 2 ORDER BY 1")
    assert (rows[0]["name"], rows[0]["depth"], rows[0]["ns"]) == ("all", 0, 1_000_000)
    assert sum(row["n"] for row in rows if row["depth"] == 1 and row["ns"] == 30 * row["n"]) == 20_000
