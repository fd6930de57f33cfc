from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.export.perfetto_oracle import Oracle
from tests.export.reels import EPOCH, ProcessBuilder, build, training_step
from torchreel.export import export
from torchreel.export.texts import quoted
from torchreel.export.timeline.nesting import MAX_DEPTH
from torchreel.reel import Reel

BASE = 1_790_857_026_000_000_000


def refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def events_of(path: Path) -> list[dict[str, Any]]:
    """The events of a file that holds strict JSON."""
    events: list[dict[str, Any]] = json.loads(path.read_bytes(), parse_constant=refuse)["traceEvents"]
    return events


def exported(reel: Reel, path: Path) -> list[dict[str, Any]]:
    export(reel, path, "chrome")
    return events_of(path)


def slices(events: list[dict[str, Any]]) -> list[tuple[str, str, int]]:
    return [(event["cat"], event["name"], event["tid"]) for event in events if event["ph"] == "X"]


def check_slices(oracle: Oracle, events: list[dict[str, Any]]) -> None:
    """Perfetto shows every slice and instant that was written, and complains of nothing."""
    assert oracle.problems() == []
    assert oracle.value("SELECT count(*) FROM slice") == sum(event["ph"] in "Xi" for event in events)


def test_the_top_of_the_file_is_kinetos(tmp_path: Path) -> None:
    process = ProcessBuilder("a-100", 100, rank=3, world_size=8)
    training_step(process)
    export(build(tmp_path / "r.reel", process), tmp_path / "out.json", "chrome")
    file = json.loads((tmp_path / "out.json").read_bytes())
    assert len(file.pop("trace_id")) == 32
    file["traceEvents"] = ...
    assert list(file.items()) == [
        ("schemaVersion", 1),
        ("deviceProperties", []),
        ("with_stack", 1),
        ("profile_memory", 1),
        ("record_shapes", 1),
        ("with_modules", 1),
        ("with_flops", 1),
        ("distributedInfo", {"backend": "", "rank": 3, "world_size": 8, "pg_count": 0, "pg_config": []}),
        ("host_name", "host"),
        ("displayTimeUnit", "ms"),
        ("baseTimeNanoseconds", BASE),
        ("traceEvents", ...),
        ("traceName", "out.json"),
    ]


def test_what_a_program_adds_stays_valid_json(tmp_path: Path) -> None:
    added = {"note": 'half \ud800 "pair"', "loss": float("nan"), "list": [1, "é"], "traceEvents": "no"}
    reel = build(tmp_path / "r.reel", ProcessBuilder("a-1", 1), metadata=added)
    exported(reel, tmp_path / "out.json")
    file = json.loads((tmp_path / "out.json").read_bytes(), parse_constant=refuse)
    assert (file["note"], file["loss"], file["list"]) == ('half \ufffd "pair"', "NaN", [1, "é"])
    assert "\\ud800" not in (tmp_path / "out.json").read_text()


def test_a_step_as_kineto_writes_it(tmp_path: Path) -> None:
    process = ProcessBuilder("a-100", 100)
    training_step(process)
    events = exported(build(tmp_path / "r.reel", process), tmp_path / "out.json")
    by_name = {event["name"]: event for event in events}
    assert slices(events) == [
        ("user_annotation", "train step", 100),
        ("cpu_op", "aten::linear", 100),
        ("cpu_op", "aten::addmm", 100),
        ("python_function", "nn.Module: Linear_0", 100),
        ("python_function", "model.py(12): forward", 100),
        ("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", 101),
        ("cpu_op", "AddmmBackward0", 101),
        ("user_annotation", "ProfilerStep#0", 102),
        ("Trace", "PyTorch Profiler (0)", "PyTorch Profiler"),
    ]
    assert list(by_name["aten::linear"]) == ["ph", "cat", "name", "pid", "tid", "ts", "dur", "args"]
    assert '"ts": 42974000002.000, "dur": 18.000' in (tmp_path / "out.json").read_text()
    assert by_name["aten::linear"]["args"] == {
        "External id": 3,
        "Record function id": 0,
        "Concrete Inputs": ["", ""],
        "Input type": ["float", "float"],
        "Input Strides": [[4, 1], [4, 1]],
        "Input Dims": [[2, 4], [4, 4]],
        "Sequence number": 7,
        "Fwd thread id": 0,
        "Call stack": "model.py(12): Model.forward;train.py(3): <module>",
        "Module Hierarchy": "Model.linear",
        "FLOPs": 64,
        "Ev Idx": 2,
    }
    assert by_name["AddmmBackward0"]["args"]["Fwd thread id"] == 1
    assert by_name["model.py(12): forward"]["args"] == {
        "Python id": 8,
        "Python parent id": 7,
        "Python thread": 100,
        "Module Hierarchy": "Model.linear",
        "Ev Idx": 7,
    }
    assert [(e["ph"], e.get("bp"), e["id"], e["tid"], e["cat"]) for e in events if e["ph"] in "sf"] == [
        ("s", None, 1, 100, "fwdbwd"),
        ("f", "e", 1, 101, "fwdbwd"),
    ]
    assert events[-1] == {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 42974001001.0}


def test_memory_events(tmp_path: Path) -> None:
    process = ProcessBuilder("a-100", 100)
    training_step(process)
    process.alloc(70_000, 8, device="cuda:1", total=8)
    process.alloc(70_001, None, "free", total=None)
    events = exported(build(tmp_path / "r.reel", process), tmp_path / "out.json")
    memory = [event["args"] for event in events if event["name"] == "[memory]"]
    assert [(args["Bytes"], args["Total Allocated"]) for args in memory] == [
        *((128, 64), (128, 192), (32, 224), (-32, 192), (8, 8), (0, 0))
    ]
    assert memory[2] == {
        "Total Reserved": 0,
        "Total Allocated": 224,
        "Bytes": 32,
        "Addr": 4096,
        "Device Id": -1,
        "Device Type": 0,
        "Call stack": "model.py(12): Model.forward;train.py(3): <module>",
        "finished": False,
        "Ev Idx": 10,
    }
    assert (memory[4]["Device Id"], memory[4]["Device Type"]) == (1, 1)


def test_names_of_processes_threads_and_extra_tracks(tmp_path: Path) -> None:
    process = ProcessBuilder("a-100", 100)
    process.thread(1, 12, "worker")
    process.range("one", 0, 10, thread=1, **{"async": True})
    process.add("marks", thread=44, time_ns=EPOCH, name="of a thread that the reel does not name")
    events = exported(build(tmp_path / "r.reel", process), tmp_path / "out.json")
    named = {
        (e["name"], e["tid"]): next(iter(e["args"].values())) for e in events if e["ph"] == "M" and e["pid"] != "Spans"
    }
    assert named == {
        ("process_name", 0): "python",
        ("process_labels", 0): "CPU",
        ("process_sort_index", 0): 100,
        ("thread_name", 100): "thread 100 (MainThread)",
        ("thread_sort_index", 100): 100,
        ("thread_name", 12): "thread 12 (worker)",
        ("thread_sort_index", 12): 12,
        ("thread_name", 101): "thread 12 (overlapping ranges)",
        ("thread_sort_index", 101): 12,
        ("thread_name", 102): "thread 44",
        ("thread_sort_index", 102): 102,
    }


def test_steps_that_are_ranges_already_are_not_written_twice(tmp_path: Path) -> None:
    process = ProcessBuilder("a-100", 100)
    process.range("ProfilerStep#0", 0, 10)
    process.add("steps", step=0, start_ns=EPOCH, end_ns=EPOCH + 10)
    process.add("steps", step=1, start_ns=EPOCH + 10, end_ns=EPOCH + 20)
    events = exported(build(tmp_path / "r.reel", process), tmp_path / "out.json")
    assert [name for _, name, _ in slices(events)][:-1] == ["ProfilerStep#0", "ProfilerStep#1"]


def test_hardware_counters_are_arguments(tmp_path: Path) -> None:
    process = ProcessBuilder("a-100", 100)
    counted = process.op("aten::mm", 0, 10, open=True)
    process.op("aten::add", 10, 20)
    process.add("counters", op=counted, name="cycles", value=300)
    events = exported(build(tmp_path / "r.reel", process), tmp_path / "out.json")
    args = [event["args"] for event in events if event.get("cat") == "cpu_op"]
    base = {"External id": counted + 1, "Record function id": 0}
    assert args[0] == {**base, "finished": False, "cycles": 300, "Ev Idx": counted}
    assert "cycles" not in args[1]


def device_reel(path: Path) -> Reel:
    process = ProcessBuilder("a-100", 100)
    launch = process.op("aten::mm", 0, 10)
    for id, (name, stream) in enumerate([("gemm", 7), ("Memcpy HtoD", 7), ("Memset (Device)", 8)]):
        times = {"start_ns": EPOCH + 20 + 10 * id, "dur_ns": 10}
        process.add(
            "kernels", id=id, device="cuda:0", stream=stream, name=name, op=launch if id == 0 else None, **times
        )
    return build(path, process)


def test_device_activity(tmp_path: Path) -> None:
    events = exported(device_reel(tmp_path / "r.reel"), tmp_path / "out.json")
    assert slices(events)[:-1] == [
        *(("cpu_op", "aten::mm", 100), ("kernel", "gemm", 7)),
        *(("gpu_memcpy", "Memcpy HtoD", 7), ("gpu_memset", "Memset (Device)", 8)),
    ]
    gemm = next(event for event in events if event["name"] == "gemm")
    assert gemm["args"] == {"External id": 2, "device": 0, "stream": 7, "Ev Idx": 2}
    assert {"labels": "GPU 0"} in [event["args"] for event in events if event["name"] == "process_labels"]
    assert [(e["ph"], e["cat"], e["tid"]) for e in events if e["ph"] in "sf"] == [("s", "ac2g", 100), ("f", "ac2g", 7)]


UNUSUAL = ['say "hi"', "back\\slash", "two\nlines", "tab\t", "\x00\x01\x1f\x7f", "\u2028é\U0001f600", "", "{[,:]}"]


def unusual_reel(path: Path) -> Reel:
    process = ProcessBuilder("a-100", 100)
    for index, name in enumerate(UNUSUAL):
        process.range(name, 100 * index, 100 * index + 50)
        process.add("marks", thread=0, time_ns=EPOCH + 100 * index + 10, name=name)
    process.thread(1, 7, 'thread "one"\n')
    process.add("frames", id=0, file='C:\\new "folder"\\x.py', line=1, function="<λ>")
    process.add("stacks", id=0, frames=[0])
    process.add("modules", id=0, path='Net."quoted"', **{"class": "Net"})
    process.add("inputs", id=0, dims="[[]]", scalars='["\\ud800 \\"x\\""]', dtypes='[""]', strides="[[]]")
    process.op("aten::mm", 5_000, 6_000, stack=0, module=0, inputs=0)
    return build(path, process)


def test_pain_9_quotes_in_names_are_valid_json(tmp_path: Path) -> None:
    events = exported(unusual_reel(tmp_path / "r.reel"), tmp_path / 'out "quoted".json')
    assert [event["name"] for event in events if event.get("cat") == "user_annotation"] == UNUSUAL
    args = next(event["args"] for event in events if event["name"] == "aten::mm")
    assert args["Call stack"] == 'C:\\new "folder"\\x.py(1): <λ>'
    assert args["Concrete Inputs"] == ['\ufffd "x"']


@pytest.mark.browser
def test_pain_9_quotes_in_names_reach_perfetto(tmp_path: Path, oracle: Oracle) -> None:
    events = exported(unusual_reel(tmp_path / "r.reel"), tmp_path / "out.json")
    oracle.load(tmp_path / "out.json")
    check_slices(oracle, events)
    rows = oracle.query("SELECT name FROM slice WHERE category = 'user_annotation' ORDER BY id")
    # Perfetto 52 shows the escapes of a name as they are, unless one of them is a quote.
    for row, name in zip(rows, UNUSUAL, strict=True):
        assert row["name"] in (name or "[No name]", quoted(name)[1:-1])


@pytest.mark.browser
def test_perfetto_shows_all_of_a_step(tmp_path: Path, oracle: Oracle) -> None:
    process = ProcessBuilder("a-100", 100)
    training_step(process)
    events = exported(build(tmp_path / "r.reel", process), tmp_path / "out.json")
    oracle.load(tmp_path / "out.json")
    check_slices(oracle, events)
    rows = oracle.query(
        "SELECT s.ts - 42974000000000 AS start, s.dur, s.depth, s.name, p.name AS parent FROM slice s "
        "LEFT JOIN slice p ON p.id = s.parent_id WHERE s.dur > 0 AND s.category != 'Trace' ORDER BY s.ts"
    )
    outer = "autograd::engine::evaluate_function: AddmmBackward0"
    assert [tuple(row.values()) for row in rows] == [
        (0, 90_000, 0, "ProfilerStep#0", None),
        (1_000, 89_000, 0, "train step", None),
        (2_000, 18_000, 1, "aten::linear", "train step"),
        (3_000, 16_000, 2, "aten::addmm", "aten::linear"),
        (30_000, 20_000, 0, outer, None),
        (31_000, 18_000, 1, "AddmmBackward0", outer),
        (60_000, 10_000, 1, "nn.Module: Linear_0", "train step"),
        (61_000, 8_000, 2, "model.py(12): forward", "nn.Module: Linear_0"),
    ]
    assert oracle.flows() == [("aten::linear", outer)]


def overlapping_reel(path: Path) -> Reel:
    """What viewers drop: ranges across others' ends, asynchronous ones, empty ones, and calls that are too deep."""
    process = ProcessBuilder("a-100", 100)
    step = process.range("ProfilerStep#0", 0, 1_000)
    process.range("across the step", 900, 1_100, parent=step)
    for index in range(5):
        process.range(f"request {index}", 100 + index, 700 + index, parent=step, **{"async": True})
    mm = process.op("aten::mm", 200, 300, parent=step)
    process.op("first", 200, 200, parent=mm)
    process.op("as long", 200, 300, parent=mm)
    last = process.op("last", 300, 300, parent=mm)
    process.op("in the last", 300, 300, parent=last)
    process.op("aten::add", 300, 310, parent=step)
    deep = process.op("deep 0", 2_000, 9_000)
    for level in range(1, MAX_DEPTH + 200):
        deep = process.op(f"deep {level}", 2_000 + level, 9_000 - level, parent=deep)
    for index in range(600):
        process.alloc(-5, 8, "preexisting", total=8 * index)
    return build(path, process)


@pytest.mark.browser
def test_pain_8_perfetto_drops_nothing_that_overlaps(tmp_path: Path, oracle: Oracle) -> None:
    events = exported(overlapping_reel(tmp_path / "r.reel"), tmp_path / "out.json")
    oracle.load(tmp_path / "out.json")
    check_slices(oracle, events)
    rows = oracle.query(
        "SELECT s.name, s.depth, p.name AS parent, thread.name AS thread FROM slice s LEFT JOIN slice p "
        "ON p.id = s.parent_id JOIN thread_track t ON t.id = s.track_id JOIN thread USING (utid) "
        "WHERE s.dur > 0 AND s.name NOT LIKE 'deep%' ORDER BY s.id"
    )
    assert {row["name"]: tuple(row.values())[1:] for row in rows if row["thread"] != "PyTorch Profiler"} == {
        "ProfilerStep#0": (0, None, "thread 100 (MainThread)"),
        "across the step": (0, None, "thread 100 (overlapping ranges)"),
        "request 0": (0, None, "thread 100 (overlapping ranges)"),
        **{f"request {index}": (0, None, f"thread 100 (overlapping ranges {index + 1})") for index in range(1, 5)},
        "aten::mm": (1, "ProfilerStep#0", "thread 100 (MainThread)"),
        "first": (2, "aten::mm", "thread 100 (MainThread)"),
        "as long": (2, "aten::mm", "thread 100 (MainThread)"),
        "last": (2, "aten::mm", "thread 100 (MainThread)"),
        "in the last": (3, "last", "thread 100 (MainThread)"),
        "aten::add": (1, "ProfilerStep#0", "thread 100 (MainThread)"),
    }
    deep = oracle.query(
        "SELECT thread.name, count(*) AS n FROM slice s JOIN thread_track t ON t.id = s.track_id "
        "JOIN thread USING (utid) WHERE s.name LIKE 'deep%' GROUP BY 1 ORDER BY 1 DESC"
    )
    assert [tuple(row.values()) for row in deep] == [
        ("thread 100 (deeper calls)", 200),
        ("thread 100 (MainThread)", MAX_DEPTH),
    ]


def rpc_reel(path: Path) -> Reel:
    """A remote call between two processes that have one number, as ranks in containers do."""
    caller, callee = ProcessBuilder("a-1", 1, rank=0, node=0), ProcessBuilder("b-1", 1, rank=1, node=1, host="b")
    call = caller.range("rpc_async#f(w0 -> w1)", 100, 900, **{"async": True})
    work = callee.op("rpc_sync#f(w0 -> w1)#remote_op: aten::mm", 300, 700)
    caller.add("flows", id=5, name="rpc", end="out", thread=0, time_ns=EPOCH + 100, op=call)
    callee.add("flows", id=5, name="rpc", end="in", thread=0, time_ns=EPOCH + 300, op=work)
    caller.add("flows", id=6, name="rpc", end="out", thread=0, time_ns=EPOCH + 100, op=call)
    return build(path, caller, callee)


@pytest.mark.browser
def test_perfetto_shows_remote_calls_between_processes_with_one_number(tmp_path: Path, oracle: Oracle) -> None:
    events = exported(rpc_reel(tmp_path / "r.reel"), tmp_path / "out.json")
    oracle.load(tmp_path / "out.json")
    check_slices(oracle, events)
    assert oracle.flows() == [("rpc_async#f(w0 -> w1)", "rpc_sync#f(w0 -> w1)#remote_op: aten::mm")]
    owners = oracle.query(
        "SELECT s.name, process.name AS process FROM slice s JOIN thread_track t ON t.id = s.track_id "
        "JOIN thread USING (utid) JOIN process USING (upid) WHERE s.name LIKE 'rpc%' ORDER BY s.ts"
    )
    assert [row["process"] for row in owners] == ["rank 0: python", "rank 1: python"]


@pytest.mark.browser
def test_perfetto_shows_device_activity(tmp_path: Path, oracle: Oracle) -> None:
    events = exported(device_reel(tmp_path / "r.reel"), tmp_path / "out.json")
    oracle.load(tmp_path / "out.json")
    check_slices(oracle, events)
    assert oracle.value("SELECT count(*) FROM flow") == 1
