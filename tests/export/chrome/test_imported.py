"""A reel that was made of a trace becomes that trace again: imported once more, it has the same tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.export.chrome.imported_tables import canonical
from tests.export.perfetto_oracle import Oracle
from tests.gpu_traces import TRACES, gpu_reel
from torchreel.export import export
from torchreel.ingest import import_traces
from torchreel.reel import Reel, load
from torchreel.reel.tables import TABLES

FEW = [
    "a100_cuda_sync_simple_add.json.gz",  # waits
    "a100_cupti_counters.json.gz",  # counters of ranges
    "a100_sampled_rank0of128.json.gz",  # collectives, launches that are missing
    "gp100_gpu_annotations.json.gz",  # ranges of devices
    "h100_bert_small.json.gz",  # Python, modules, memory
    "mi250_rocm62_toy.json.gz",
    "mi300_vllm_graph_replay.json.gz",
    "tb_gpu_metrics_input.json",  # torch 1.8
]


def again(reel: Reel, name: str, directory: Path) -> Reel:
    """The reel, exported and imported."""
    export(reel, directory / name, "chrome")
    import_traces([directory / name], directory / "again.reel")
    return load(directory / "again.reel")


@pytest.mark.parametrize("name", [*FEW, *(pytest.param(n, marks=pytest.mark.long) for n in TRACES if n not in FEW)])
def test_all_tables_come_back(name: str, tmp_path: Path) -> None:
    reel = gpu_reel(name)
    before, after = canonical(reel), canonical(again(reel, name, tmp_path))
    for table in TABLES:
        assert before[table] - after[table] == {}, f"rows of {table} are lost"
        assert after[table] - before[table] == {}, f"rows of {table} are new"


def test_samples_marks_flows_and_strange_categories_come_back(tmp_path: Path) -> None:
    def event(ph: str, name: str, ts: object, **fields: Any) -> dict[str, Any]:
        return {"ph": ph, "name": name, "ts": ts, "pid": 77, "tid": 78, **fields}

    kernel = {
        "device": 1,
        "stream": 3,
        "correlation": 5,
        "grid": [1, 2, 3],
        "blocks per SM": 0.25,
        "note": 'a "b" \\ é',
    }
    events = [
        event("X", "aten::mm", 10.5, dur=9, cat="cpu_op", args={"External id": 4, "own": [1, {"cat": "x"}]}),
        event("X", "cudaLaunchKernel", 11, dur=1, cat="cuda_runtime", args={"correlation": 5, "cbid": 211}),
        event("X", 'name "quoted" \n', 12, dur=2, cat="kernel", args=kernel) | {"pid": 1, "tid": 3},
        event("X", "unknown to all", 1, dur=1, cat="strange", args={"a": 1}),
        event("X", "not ended", 20, cat="cpu_op"),
        event("X", "Event Sync", 30, dur=1, cat="cuda_sync", args={"stream": -1, "device": 1, "correlation": 5})
        | {"pid": 1, "tid": -1},
        event("C", "GPU utilization", 13, args={"value": 0.5}) | {"pid": 1},
        event("C", "power", 14, args={"value": 220}),
        event("i", "a mark", 15, s="t"),
        event("s", "rpc", 16, id=8, cat="rpc"),
        event("f", "rpc", 17, id=8, cat="rpc"),
        {"ph": "M", "name": "process_name", "pid": 77, "tid": 0, "args": {"name": "python"}},
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 3, "args": {"name": "stream 3 "}},
    ]
    first = tmp_path / "first.json"
    top = {"host_name": "node", "baseTimeNanoseconds": 10**18, "own key": [1, 2], "distributedInfo": {"rank": 3}}
    first.write_text(json.dumps({**top, "traceEvents": events}))
    import_traces([first], tmp_path / "first.reel")
    reel = load(tmp_path / "first.reel")
    (tmp_path / "b").mkdir()
    other = again(reel, "first.json", tmp_path / "b")
    assert canonical(reel) == canonical(other)
    for table, count in {"samples": 2, "marks": 1, "flows": 2, "kernels": 1, "syncs": 1, "ops": 4}.items():
        assert reel.table(table).num_rows == count
    written = json.loads((tmp_path / "b" / "first.json").read_text())
    assert (written["own key"], written["host_name"]) == ([1, 2], "node")


def test_a_kernel_is_written_as_kineto_writes_it(tmp_path: Path) -> None:
    export(gpu_reel("h100_bert_small.json.gz"), tmp_path / "out.json", "chrome")
    events = json.loads((tmp_path / "out.json").read_text())["traceEvents"]
    kernels = [event for event in events if event.get("cat") == "kernel"]
    assert len(kernels) == 60
    assert {(event["pid"], event["tid"], event["args"]["device"], event["args"]["stream"]) for event in kernels} == {
        (0, 7, 0, 7)
    }
    names = {"External id", "correlation", "context", "grid", "block", "registers per thread", "shared memory"}
    assert all(names <= event["args"].keys() for event in kernels)
    calls = {
        event["args"]["correlation"]: event
        for event in events
        if event.get("cat", "").startswith("cuda_") and "correlation" in event["args"]
    }
    ops = {event["args"]["External id"]: event for event in events if event.get("cat") == "cpu_op"}
    for kernel in kernels:
        call, op = calls[kernel["args"]["correlation"]], ops[kernel["args"]["External id"]]
        assert call["args"]["External id"] == kernel["args"]["External id"]
        assert op["ts"] <= call["ts"] <= op["ts"] + op["dur"]
    arrows = [(event["ph"], event["id"]) for event in events if event.get("cat") == "ac2g"]
    assert len(arrows) == 2 * 61


@pytest.mark.browser
def test_perfetto_draws_what_it_drew_of_the_original(tmp_path: Path, oracle: Oracle) -> None:
    name = "gp100_gpu_annotations.json.gz"
    export(gpu_reel(name), tmp_path / "out.json", "chrome")
    loaded = oracle.load(tmp_path / "out.json")
    assert loaded.problems() == []
    counts = loaded.query("SELECT category, count(*) AS n FROM slice GROUP BY category ORDER BY category")
    assert {row["category"]: row["n"] for row in counts if row["category"] != "Trace"} == {
        "cpu_op": 643,
        "cuda_runtime": 180,
        "gpu_memcpy": 10,
        "gpu_user_annotation": 10,
        "kernel": 130,
        "user_annotation": 10,
    }
    assert len([pair for pair in loaded.flows() if pair[0].startswith("cuda")]) == 140
