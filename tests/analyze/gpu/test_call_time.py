"""The time of devices for calls of the host, in the tables of `report`, counted by hand and on real traces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import torchreel
from tests.analyze.gpu.by_hand import Rows, call, kernel, reel_of
from tests.gpu_traces import FACTS, TRACES, gpu_reel
from tests.sample import sampled
from torchreel.analyze.gpu.call_time import call_time

# linear (Net.fc) { linear { launch, launch }, copy_ { launch } }, relu (Net) { launch }, launch without an op
TREE: Rows = {
    "modules": [{"path": "Net", "class": "Net"}, {"path": "Net.fc", "class": "Linear", "parent": 0}],
    "ops": [
        call(0, 100, "aten::linear", "op", module=1, step=1, self_ns=20),
        call(10, 60, "aten::linear", "op", parent=0, module=1, step=1, self_ns=40),
        call(20, 25, parent=1, module=1, step=1),
        call(30, 35, parent=1, module=1, step=1),
        call(70, 100, "aten::copy_", "op", parent=0, module=1, step=1, self_ns=20),
        call(80, 90, parent=4, module=1, step=1),
        call(200, 220, "aten::relu", "op", module=0, step=2, self_ns=15),
        call(205, 210, parent=6, module=0, step=2),
        call(300, 310, step=2),
    ],
    "kernels": [
        kernel(400, 500, launch=2, op=1),
        kernel(500, 510, launch=3, op=1),
        kernel(510, 513, launch=5, op=4, kind="copy"),
        kernel(513, 520, launch=7, op=6),
        kernel(520, 521, launch=8),
        kernel(600, 650),
    ],
}


def devices(table: Any, *names: str) -> list[tuple[Any, ...]]:
    return [
        tuple(row[name] for name in (*names, "kernels", "self_device_ns", "device_ns")) for row in table.to_pylist()
    ]


def test_a_call_and_the_calls_inside(tmp_path: Path) -> None:
    reel = reel_of(tmp_path / "run.reel", TREE)
    found = call_time(reel)
    assert found is not None
    assert devices(found, "id") == [(0, 0, 0, 113), (1, 2, 110, 110), (4, 1, 3, 3), (6, 1, 7, 7), (8, 1, 1, 1)]
    assert call_time(reel_of(tmp_path / "none.reel", {"ops": TREE["ops"]})) is None


def test_groups_of_calls(tmp_path: Path) -> None:
    reel = reel_of(tmp_path / "run.reel", TREE)
    by_name = torchreel.averages(reel, sort="device")
    assert devices(by_name, "name", "calls") == [
        ("aten::linear", 1, 2, 110, 113),  # a linear within a linear is counted once
        ("aten::relu", 1, 1, 7, 7),
        ("aten::copy_", 1, 1, 3, 3),
        ("cudaLaunchKernel", 5, 1, 1, 1),
    ]
    assert devices(torchreel.averages(reel, "module", sort="device"), "module") == [
        ("Net", 1, 7, 120),
        ("Net.fc", 3, 113, 113),
        ("(no module)", 1, 1, 1),
    ]
    assert devices(torchreel.averages(reel, "step", sort="device"), "step") == [(1, 3, 113, 113), (2, 2, 8, 8)]
    of_ops = torchreel.averages(reel, kinds=["op"], sort="device")
    assert devices(of_ops, "name") == devices(by_name, "name")[:3]


def test_a_reel_without_devices_has_the_columns_that_it_had(tmp_path: Path) -> None:
    reel = reel_of(tmp_path / "run.reel", {"ops": TREE["ops"]})
    assert torchreel.averages(reel, sort="device").equals(torchreel.averages(reel, sort="self"))
    assert torchreel.averages(reel).column_names[-1] == "flops"


def test_a_line_within_itself_is_counted_once(tmp_path: Path) -> None:
    """In a trace each call has its own stack: of one line, but with other frames of libraries inside."""
    frames = [("/src/train.py", 3, "main"), ("/site-packages/torch/nn/linear.py", 7, "forward")]
    reel = reel_of(
        tmp_path / "run.reel",
        {
            "frames": [{"file": file, "line": line, "function": function} for file, line, function in frames],
            "stacks": [{"frames": [0]}, {"frames": [1, 0]}],
            "ops": [
                call(0, 100, "mine", "range", stack=0, self_ns=40),
                call(20, 80, "aten::mm", "op", parent=0, stack=1),
            ],
            "kernels": [kernel(200, 210, op=1)],
        },
    )
    (row,) = torchreel.averages(reel, "line").to_pylist()
    assert (row["calls"], row["total_ns"], row["self_device_ns"], row["device_ns"]) == (2, 100, 10, 10)


@pytest.mark.skipif(not TRACES, reason="there are no real traces: name their directory in TORCHREEL_TRACES")
@pytest.mark.parametrize("name", sampled(TRACES, 3))
def test_real_traces(name: str) -> None:
    """Rows of whatever group add up to all that was launched, and rows of ops are those that another program found."""
    reel = gpu_reel(name)
    (row,) = reel.sql(
        "select count(*) as n, coalesce(sum(dur_ns), 0)::bigint as ns from kernels"
        " where op is not null or launch is not null"
    ).to_pylist()
    by_name = torchreel.averages(reel).to_pylist()
    if "kernels" not in by_name[0]:
        assert not reel.table("kernels", ["id"]).num_rows
        return
    for rows in (by_name, *(torchreel.averages(reel, by).to_pylist() for by in ("module", "stack"))):
        assert sum(one["kernels"] for one in rows) == row["n"]
        assert sum(one["self_device_ns"] for one in rows) == row["ns"]
        assert all(one["device_ns"] >= 0 for one in rows)
    found = {one["name"]: (one["kernels"], one["self_device_ns"]) for one in by_name}
    for fact in FACTS[name]["by_op"]:
        if fact["name"] is not None:
            assert found[fact["name"]] == (fact["count"], fact["sum_ns"])
