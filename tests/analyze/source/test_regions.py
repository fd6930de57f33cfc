"""What parts of files cost: against the definition, call by call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import torchreel
from tests.analyze.source.test_line_ops import hostile
from tests.analyze.source.test_lines import LINEAR, MODEL, TRAIN, random_reel
from tests.synthetic import Call, Process, call, write_reel
from torchreel.analyze.source.lines import lines
from torchreel.analyze.source.regions import MEASURES, regions

WHOLE = (-(1 << 31), (1 << 31) - 1)
FILES = tuple(f"/home/me/file_{n}.py" for n in range(4))
Region = tuple[str, int, int]


def table_of(rows: list[Region]) -> pa.Table:
    files, begins, ends = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.table(
        {
            "id": pa.array([f"region {n}" for n in range(len(rows))], pa.string()),
            "file": pa.array(files, pa.string()),
            "begin": pa.array(begins, pa.int64()),
            "end": pa.array(ends, pa.int64()),
        }
    )


def costs(*values: int | None) -> dict[str, int | None]:
    return dict(zip(MEASURES, values, strict=True))


def test_functions_classes_and_files(tmp_path: Path) -> None:
    stack = (LINEAR, MODEL, TRAIN)
    calls = [
        call("aten::mm", 30, flops=24, bytes=8, stack=stack),
        call("aten::add", 7, bytes=-8, stack=(TRAIN,)),
        call("MmBackward0", 1, call("aten::mm", 50, flops=48, stack=stack), kind="backward", stack=stack),
        # A function that calls itself: each call counts once.
        call("aten::mul", 100, stack=(MODEL, ("/home/me/model.py", 4, "Net.forward"), MODEL, TRAIN)),
    ]
    reel = torchreel.load(write_reel(tmp_path / "run.reel", Process({"main": calls})))
    asked = [
        (LINEAR[0], 130, 134),
        (LINEAR[0], 135, 140),
        (MODEL[0], 4, 5),
        (MODEL[0], *WHOLE),
        (TRAIN[0], 10, 10),
        (TRAIN[0], 10, 9),
        ("/home/me/other.py", *WHOLE),
    ]
    assert regions(reel, table_of(asked)).to_pylist() == [
        {"id": "region 0", **costs(3, 81, 30, 51, 81, 8, 72, 51)},
        {"id": "region 1", **costs(0, 0, 0, 0, 0, 0, None, 0)},
        {"id": "region 2", **costs(1, 100, 100, 0, 181, 0, None, 51)},
        {"id": "region 3", **costs(1, 100, 100, 0, 181, 0, None, 51)},
        {"id": "region 4", **costs(1, 7, 7, 0, 188, 0, None, 51)},
        {"id": "region 5", **costs(0, 0, 0, 0, 0, 0, None, 0)},
        {"id": "region 6", **costs(0, 0, 0, 0, 0, 0, None, 0)},
    ]


def random_calls(random: np.random.Generator, depth: int) -> list[Call]:
    made = []
    for _ in range(int(random.integers(1, 4))):
        frames = [
            (FILES[int(random.integers(len(FILES)))], int(random.integers(1, 40)), "f")
            for _ in range(int(random.integers(1, 6)))
        ]
        made.append(
            call(
                "aten::op",
                int(random.integers(0, 1_000)),
                *(random_calls(random, depth - 1) if depth else ()),
                kind=str(random.choice(["op", "op", "backward"])),
                stack=tuple(frames) if random.random() < 0.9 else None,
                flops=int(random.integers(100)) if random.random() < 0.5 else None,
                bytes=int(random.integers(-50, 50)),
            )
        )
    return made


def expected(calls: list[tuple[Call, bool]], held: Any) -> dict[str, int | None]:
    """What the frames for which `held` is true cost."""
    found = costs(0, 0, 0, 0, 0, 0, None, 0)
    for item, backward in calls:
        stack = item.stack or ()
        if any(held(*frame[:2]) for frame in stack):
            found["total_ns"] += item.self_ns
            found["total_backward_ns"] += item.self_ns if backward else 0
        if stack and held(*stack[0][:2]):
            found["calls"] += 1
            found["self_ns"] += item.self_ns
            found["backward_ns" if backward else "forward_ns"] += item.self_ns
            found["alloc_bytes"] += max(item.bytes or 0, 0)
            if item.flops is not None:
                found["flops"] = (found["flops"] or 0) + item.flops
    return found


@pytest.mark.parametrize("seed", range(10))
def test_against_the_definition_call_by_call(tmp_path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    reel, calls = random_reel(tmp_path / "run.reel", random, random_calls)
    asked: list[Region] = [(file, *WHOLE) for file in FILES]
    for _ in range(60):
        begin = int(random.integers(-2, 45))
        asked.append((FILES[int(random.integers(len(FILES)))], begin, begin + int(random.integers(-1, 20))))
    wanted = [
        {
            "id": f"region {n}",
            **expected(calls, lambda f, line, file=file, begin=begin, end=end: f == file and begin <= line <= end),
        }
        for n, (file, begin, end) in enumerate(asked)
    ]
    assert regions(reel, table_of(asked)).to_pylist() == wanted

    # The same file under two paths: a call that has it under both counts once.
    named = pa.table({"path": list(FILES), "file": pa.array([7, 7, 8, 9], pa.int32())})
    whole = pa.table({"id": [7, 8], "file": pa.array([7, 8], pa.int32()), "begin": [5] * 2, "end": [20] * 2})
    both = expected(calls, lambda file, line: file in FILES[:2] and 5 <= line <= 20)
    third = expected(calls, lambda file, line: file == FILES[2] and 5 <= line <= 20)
    assert regions(reel, whole, named).to_pylist() == [{"id": 7, **both}, {"id": 8, **third}]


def test_a_line_is_a_region_too(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    reel = torchreel.load(write_reel(tmp_path / "run.reel", Process({"main": random_calls(random, 4)})))
    rows = lines(reel).to_pylist()
    found = regions(reel, table_of([(row["file"], row["line"], row["line"]) for row in rows]))
    assert found.select(MEASURES).to_pylist() == [{name: row[name] for name in MEASURES} for row in rows]


@pytest.mark.parametrize("calls", [[], [call("aten::mm", 5)]], ids=["no ops", "no stacks"])
def test_without_stacks_nothing_is_known(tmp_path: Path, calls: list[Call]) -> None:
    reel = torchreel.load(write_reel(tmp_path / "run.reel", Process({"main": calls})))
    found = regions(reel, table_of([(FILES[0], *WHOLE)]))
    assert found.to_pylist() == [{"id": "region 0", **costs(*[None] * 8)}]


def test_a_hostile_reel(tmp_path: Path) -> None:
    reel = hostile(tmp_path / "run.reel")
    markup = "<script>alert(1)</script>.py"
    asked = table_of([(markup, *WHOLE), (markup, -7, -7), (markup, 0, 9), ("a.py", *WHOLE), ("a.py", 1, 99)])
    assert regions(reel, asked).select(["self_ns", "total_ns"]).to_pylist() == [
        {"self_ns": own, "total_ns": total} for own, total in ((18, 22), (18, 22), (0, 0), (4, 4), (0, 0))
    ]
    # Frames without a file can be asked for, too.
    nowhere = pa.table({"path": pa.array([None, markup], pa.string()), "file": ["nowhere", "other"]})
    found = regions(reel, table_of([("nowhere", *WHOLE), ("nowhere", 3, 3), ("other", *WHOLE)]), nowhere)
    assert found["self_ns"].to_pylist() == [9, 1, 18]
    assert regions(reel, table_of([])).num_rows == 0


@pytest.mark.programs
def test_files_of_a_recorded_run(tmp_path: Path) -> None:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    with torchreel.record(tmp_path / "run.reel", stacks=True, memory=True, flops=True, shapes=True):
        model(torch.randn(8, 16)).sum().backward()
    reel = torchreel.load(tmp_path / "run.reel")
    files = sorted(set(lines(reel)["file"].to_pylist()))
    found = regions(reel, table_of([(file, *WHOLE) for file in files]))
    asked = reel.sql("select sum(self_ns)::bigint as own, count(*) as calls from ops where stack is not null")
    assert [{"own": pc.sum(found["self_ns"]).as_py(), "calls": pc.sum(found["calls"]).as_py()}] == asked.to_pylist()
    # All was called from here.
    assert found["total_ns"][files.index(__file__)].as_py() == asked["own"][0].as_py()
