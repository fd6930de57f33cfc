"""What lines cost: against the definition, call by call, and the sums that must be exact."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest

import torchreel
from tests.synthetic import START, Call, Process, call, write_reel
from torchreel.analyze.source.lines import lines, user_lines

TRAIN = ("/home/me/train.py", 10, "main")
MODEL = ("/home/me/model.py", 5, "Net.forward")
LINEAR = ("/env/lib/python3.11/site-packages/torch/nn/modules/linear.py", 134, "Linear.forward")
EINOPS = ("/env/lib/python3.11/site-packages/einops/einops.py", 9, "rearrange")
FRAMES = (TRAIN, MODEL, LINEAR, EINOPS, ("/home/me/train.py", 11, "main"), ("/home/me/train.py", 10, "<lambda>"))


@pytest.fixture
def reel(tmp_path: Path) -> torchreel.Reel:
    forward = call(
        "aten::linear",
        2,
        call("aten::addmm", 30, flops=24, bytes=8, stack=(LINEAR, MODEL, TRAIN)),
        stack=(LINEAR, MODEL, TRAIN),
    )
    backward = call(
        "autograd::engine::evaluate_function: AddmmBackward0",
        1,
        call(
            "AddmmBackward0",
            3,
            call(
                "aten::mm", 50, call("aten::t", 4, stack=(LINEAR, MODEL, TRAIN)), flops=48, stack=(LINEAR, MODEL, TRAIN)
            ),
            kind="backward",
            stack=(LINEAR, MODEL, TRAIN),
        ),
        stack=(LINEAR, MODEL, TRAIN),
    )
    plain = call("aten::add", 7, bytes=-8, stack=(TRAIN,))
    module = call("nn.Module: Net", 100, forward, kind="module")
    return torchreel.load(write_reel(tmp_path / "run.reel", Process({"MainThread": [module, plain, backward]})))


def test_a_line_has_the_backward_that_it_caused(reel: torchreel.Reel) -> None:
    assert lines(reel).to_pylist() == [
        {
            "file": LINEAR[0],
            "line": 134,
            "function": "Linear.forward",
            "calls": 6,
            "self_ns": 90,
            "forward_ns": 33,
            "backward_ns": 57,
            "total_ns": 90,
            "alloc_bytes": 8,
            "flops": 72,
            "total_backward_ns": 57,
            "owner": "torch",
        },
        {
            "file": TRAIN[0],
            "line": 10,
            "function": "main",
            "calls": 1,
            "self_ns": 7,
            "forward_ns": 7,
            "backward_ns": 0,
            "total_ns": 97,
            "alloc_bytes": 0,
            "flops": None,
            "total_backward_ns": 57,
            "owner": "user",
        },
        {
            "file": MODEL[0],
            "line": 5,
            "function": "Net.forward",
            "calls": 0,
            "self_ns": 0,
            "forward_ns": 0,
            "backward_ns": 0,
            "total_ns": 90,
            "alloc_bytes": 0,
            "flops": None,
            "total_backward_ns": 57,
            "owner": "user",
        },
    ]


def test_the_user_s_own_lines_have_what_they_led_to(reel: torchreel.Reel) -> None:
    found = {(row["file"], row["line"]): row for row in user_lines(reel).to_pylist()}
    assert list(found) == [MODEL[:2], TRAIN[:2]]
    assert found[MODEL[:2]]["self_ns"] == 90 and found[MODEL[:2]]["backward_ns"] == 57
    assert found[MODEL[:2]]["total_backward_ns"] == found[TRAIN[:2]]["total_backward_ns"] == 57
    assert found[TRAIN[:2]]["self_ns"] == 7 and found[TRAIN[:2]]["total_ns"] == 97


def test_a_range_of_time_has_the_calls_that_began_in_it(reel: torchreel.Reel) -> None:
    # The module takes 132 ns, then comes aten::add.
    assert [row["self_ns"] for row in lines(reel, (START + 132, START + 139)).to_pylist()] == [7]
    assert lines(reel, (START + 1_000, START + 2_000)).num_rows == 0


def test_a_reel_without_stacks_has_no_lines(tmp_path: Path) -> None:
    reel = torchreel.load(write_reel(tmp_path / "run.reel", Process({"MainThread": [call("aten::add", 7)]})))
    assert lines(reel).num_rows == 0
    assert user_lines(reel).num_rows == 0


def random_calls(random: np.random.Generator, depth: int) -> list[Call]:
    made = []
    for _ in range(int(random.integers(1, 4))):
        stack = tuple(FRAMES[n] for n in random.integers(0, len(FRAMES), size=int(random.integers(1, 5))))
        made.append(
            call(
                f"call {int(random.integers(5))}",
                int(random.integers(0, 1_000)),
                *(random_calls(random, depth - 1) if depth else ()),
                kind=str(random.choice(["op", "op", "backward", "range"])),
                stack=stack if random.random() < 0.9 else None,
                flops=int(random.integers(100)) if random.random() < 0.5 else None,
                bytes=int(random.integers(-50, 50)),
            )
        )
    return made


def flat(calls: list[Call], backward: bool = False) -> Iterator[tuple[Call, bool]]:
    for item in calls:
        inside = backward or item.kind == "backward"
        yield item, inside
        yield from flat(list(item.children), inside)


def random_reel(
    path: Path, random: np.random.Generator, make: Callable[[np.random.Generator, int], list[Call]]
) -> tuple[torchreel.Reel, list[tuple[Call, bool]]]:
    """A reel of two processes with two threads each, and all their calls, each with whether it is in backward."""
    processes = [
        Process({f"thread {n}": make(random, 3) for n in range(2)}, name=f"host-{pid}", pid=pid) for pid in (1, 2)
    ]
    calls = [item for process in processes for thread in process.threads.values() for item in flat(list(thread))]
    return torchreel.load(write_reel(path, *processes)), calls


def expected(calls: list[tuple[Call, bool]], is_shown: Any) -> dict[tuple[str, int], dict[str, Any]]:
    found: dict[tuple[str, int], dict[str, Any]] = {}
    names = ("calls", "self_ns", "forward_ns", "backward_ns", "total_ns", "alloc_bytes", "total_backward_ns")
    zero = {**dict.fromkeys(names, 0), "flops": None}
    for item, backward in calls:
        shown = [frame[:2] for frame in item.stack or () if is_shown(frame)]
        for line in set(shown):
            row = found.setdefault(line, dict(zero))
            row["total_ns"] += item.self_ns
            row["total_backward_ns"] += item.self_ns if backward else 0
        if shown:
            row = found[shown[0]]
            row["calls"] += 1
            row["self_ns"] += item.self_ns
            row["backward_ns" if backward else "forward_ns"] += item.self_ns
            row["alloc_bytes"] += max(item.bytes or 0, 0)
            if item.flops is not None:
                row["flops"] = (row["flops"] or 0) + item.flops
    return found


@pytest.mark.parametrize("seed", range(10))
def test_against_the_definition_call_by_call(tmp_path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    reel, calls = random_reel(tmp_path / "run.reel", random, random_calls)
    for table, is_shown in ((lines(reel), lambda frame: True), (user_lines(reel), lambda f: f[0].startswith("/home"))):
        measures = [name for name in table.column_names if name not in ("file", "line", "function", "owner")]
        found = {(row["file"], row["line"]): {name: row[name] for name in measures} for row in table.to_pylist()}
        assert found == expected(calls, is_shown)
        for row in found.values():
            assert 0 <= row["backward_ns"] <= row["total_backward_ns"] <= row["total_ns"]
    own_time = sum(item.self_ns for item, _ in calls if item.stack)
    assert pc.sum(lines(reel)["self_ns"]).as_py() == own_time


@pytest.mark.programs
def test_the_sum_over_lines_is_exact_in_a_recorded_run(tmp_path: Path) -> None:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    with torchreel.record(tmp_path / "run.reel", stacks=True, memory=True, flops=True, shapes=True):
        model(torch.randn(8, 16)).sum().backward()
    reel = torchreel.load(tmp_path / "run.reel")
    table = lines(reel)
    asked = reel.sql(
        "select sum(self_ns)::bigint as self_ns, count(*) as calls, sum(flops)::bigint as flops from ops"
        " where stack is not null"
    ).to_pylist()[0]
    for name in ("self_ns", "calls", "flops"):
        assert pc.sum(table[name]).as_py() == asked[name] > 0
    assert pc.sum(table["backward_ns"]).as_py() > 0
    # What the user wrote has no own backward, and led to all of it.
    here = {row["line"]: row for row in table.to_pylist() if row["file"] == __file__}
    (called,) = [row for row in here.values() if row["total_backward_ns"] == pc.sum(table["backward_ns"]).as_py()]
    assert called["backward_ns"] < called["total_backward_ns"] < called["total_ns"]
    # Each backward call has the line of its forward call, so what the user wrote has all of the time.
    assert pc.sum(user_lines(reel)["self_ns"]).as_py() == asked["self_ns"]
