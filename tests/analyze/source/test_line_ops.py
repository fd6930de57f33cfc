"""Which ops lines ran: against the definition, call by call, and the sums that must be exact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import torchreel
from tests.analyze.source.test_lines import LINEAR, MODEL, TRAIN, random_calls, random_reel
from tests.synthetic import Call, Process, call, write_reel
from torchreel.analyze.source.line_ops import line_ops
from torchreel.analyze.source.lines import lines
from torchreel.reel.meta import write_meta
from torchreel.reel.write import write_process

SUMMED = ("calls", "self_ns", "alloc_bytes", "flops")


def row(path: str, line: int, op: str, backward: bool, self_ns: int, **fields: Any) -> dict[str, Any]:
    plain = {"overload": "", "calls": 1, "alloc_bytes": 0, "flops": None}
    return {"path": path, "line": line, "op": op, "backward": backward, "self_ns": self_ns, **plain, **fields}


def test_ops_of_a_line_forward_and_backward_apart(tmp_path: Path) -> None:
    stack = (LINEAR, MODEL, TRAIN)
    calls = [
        call("aten::mm", 30, flops=24, bytes=8, stack=stack),
        call("aten::add", 3, overload="Tensor", bytes=-8, stack=(TRAIN,)),
        call("aten::add", 4, overload="Scalar", stack=(TRAIN,)),
        call("MmBackward0", 1, call("aten::mm", 50, flops=48, stack=stack), kind="backward", stack=stack),
        call("aten::mm", 20, stack=stack),
        call("aten::mm", 1_000),
    ]
    found = line_ops(torchreel.load(write_reel(tmp_path / "run.reel", Process({"main": calls}))))
    assert found.to_pylist() == [
        row(LINEAR[0], 134, "aten::mm", False, 50, calls=2, alloc_bytes=8, flops=24),
        row(LINEAR[0], 134, "aten::mm", True, 50, flops=48),
        row(LINEAR[0], 134, "MmBackward0", True, 1),
        row(TRAIN[0], 10, "aten::add", False, 4, overload="Scalar"),
        row(TRAIN[0], 10, "aten::add", False, 3, overload="Tensor"),
    ]


def expected(calls: list[tuple[Call, bool]]) -> dict[tuple[Any, ...], list[int | None]]:
    found: dict[tuple[Any, ...], list[int | None]] = {}
    for item, backward in calls:
        if item.stack is None:
            continue
        sums = found.setdefault((*item.stack[0][:2], item.name, item.overload, backward), [0, 0, 0, None])
        sums[0] += 1
        sums[1] += item.self_ns
        sums[2] += max(item.bytes or 0, 0)
        if item.flops is not None:
            sums[3] = (sums[3] or 0) + item.flops
    return found


def by_line(table: pa.Table, path: str) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The sums of each line: of all calls, and of those in backward."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for each in table.to_pylist():
        backward = each["self_ns"] if each.get("backward") else each.get("backward_ns", 0)
        sums = found.setdefault((each[path], each["line"]), {**dict.fromkeys(SUMMED, 0), "backward_ns": 0})
        for name in SUMMED:
            sums[name] += each[name] or 0
        sums["backward_ns"] += backward
    return {line: sums for line, sums in found.items() if sums["calls"]}


@pytest.mark.parametrize("seed", range(10))
def test_against_the_definition_call_by_call(tmp_path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    reel, calls = random_reel(tmp_path / "run.reel", random, random_calls)
    found = line_ops(reel)
    keys = ("path", "line", "op", "overload", "backward")
    assert {tuple(one[key] for key in keys): [one[name] for name in SUMMED] for one in found.to_pylist()} == expected(
        calls
    )
    assert by_line(found, "path") == by_line(lines(reel), "file")


def hostile(path: Path) -> torchreel.Reel:
    """Frames without a file or a line, lines below zero, stacks that name frames which are not there, or none."""
    frames = [
        {"id": 0, "file": None, "line": 3, "function": "f"},
        {"id": 1, "file": "<script>alert(1)</script>.py", "line": -7, "function": "<b>"},
        {"id": 2, "file": "a.py", "line": None, "function": None},
        {"id": 3, "file": None, "line": None, "function": None},
    ]
    stacks = [[0], [1], [2, 1], [3], [99, 1], [98, 99], [], None]
    ops = [
        {"id": n, "name": f"<i>{n}", "kind": "op", "start_ns": n, "dur_ns": 1 << n, "self_ns": 1 << n, "stack": stack}
        for n, stack in enumerate([*range(len(stacks)), 77, -5, None])
    ]
    ops.append({"id": 60, "parent": 60, "name": None, "kind": None, "self_ns": None, "stack": 1})
    tables = {
        "ops": ops,
        "frames": frames,
        "processes": [{"name": "host-1", "complete": True}],
        "stacks": [{"id": n, "frames": frames} for n, frames in enumerate(stacks)],
    }
    path.mkdir()
    write_process(path / "host-1", {name: pa.Table.from_pylist(rows) for name, rows in tables.items()})
    write_meta(path, {"root": "host-1"})
    return torchreel.load(path)


def test_a_hostile_reel(tmp_path: Path) -> None:
    reel = hostile(tmp_path / "run.reel")
    markup = "<script>alert(1)</script>.py"
    assert line_ops(reel).to_pylist() == [
        row(markup, -7, "<i>4", False, 16),
        row(markup, -7, "<i>1", False, 2),
        row(markup, -7, None, False, 0),
        row("a.py", None, "<i>2", False, 4),
        row(None, 3, "<i>0", False, 1),
        row(None, None, "<i>3", False, 8),
    ]
    found = {(one["file"], one["line"]): (one["self_ns"], one["total_ns"]) for one in lines(reel).to_pylist()}
    assert found == {(markup, -7): (18, 22), ("a.py", None): (4, 4), (None, 3): (1, 1), (None, None): (8, 8)}


@pytest.mark.parametrize("calls", [[], [call("aten::mm", 5)]], ids=["no ops", "no stacks"])
def test_without_stacks_there_are_no_lines(tmp_path: Path, calls: list[Call]) -> None:
    reel = torchreel.load(write_reel(tmp_path / "run.reel", Process({"main": calls})))
    assert line_ops(reel).num_rows == 0


def test_sums_beyond_what_a_float_holds_are_exact(tmp_path: Path) -> None:
    large = (1 << 53) + 1
    calls = [call("aten::mm", 1, flops=large, bytes=large, stack=(TRAIN,)) for _ in range(3)]
    reel = torchreel.load(write_reel(tmp_path / "run.reel", Process({"main": calls})))
    for table in (line_ops(reel), lines(reel)):
        assert table.select(["alloc_bytes", "flops"]).to_pylist() == [{"alloc_bytes": 3 * large, "flops": 3 * large}]


@pytest.mark.programs
def test_the_sums_of_a_recorded_run_are_exact(tmp_path: Path) -> None:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    with torchreel.record(tmp_path / "run.reel", stacks=True, memory=True, flops=True, shapes=True):
        model(torch.randn(8, 16)).sum().backward()
    reel = torchreel.load(tmp_path / "run.reel")
    found = line_ops(reel)
    assert by_line(found, "path") == by_line(lines(reel), "file")
    asked = reel.sql(
        "select count(*) as calls, sum(self_ns)::bigint as self_ns, sum(flops)::bigint as flops,"
        " sum(greatest(self_alloc_bytes, 0))::bigint as alloc_bytes from ops where stack is not null"
    ).to_pylist()[0]
    assert {name: pc.sum(found[name]).as_py() for name in SUMMED} == asked
    assert pc.sum(found.filter(found["backward"])["self_ns"]).as_py() == pc.sum(lines(reel)["backward_ns"]).as_py() > 0
