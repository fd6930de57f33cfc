"""The flame graph against walking each call."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import torchreel
from tests.synthetic import START, Call, Process, call, write_reel
from torchreel.web.lane_set import LaneSet
from torchreel.web.questions.flame import flame_of

Path_ = tuple[str, ...]


def random_calls(random: np.random.Generator, depth: int) -> list[Call]:
    return [
        call(
            f"call {int(random.integers(4))}",
            int(random.integers(1, 100)),
            *(random_calls(random, depth - 1) if depth and random.random() < 0.7 else ()),
        )
        for _ in range(int(random.integers(1, 4)))
    ]


def walked(calls: list[Call], above: Path_ = ()) -> dict[Path_, tuple[int, int]]:
    found: dict[Path_, tuple[int, int]] = {}
    for item in calls:
        path = (*above, item.name)
        for key, (total, count) in {path: (item.dur_ns, 1)}.items() | walked(list(item.children), path).items():
            had = found.get(key, (0, 0))
            found[key] = (had[0] + total, had[1] + count)
    return found


def by_path(reel: torchreel.Reel, begin: int = 0, end: int = 1 << 60) -> dict[Path_, tuple[int, int]]:
    lanes = LaneSet(START)
    answer = flame_of(lanes.lanes_of(reel), begin, end)
    assert answer["left_out"] == 0
    names = [name for name, _ in lanes.labels]
    nodes = {node["id"]: node for node in answer["nodes"]}

    def path(number: int) -> Path_:
        return () if number < 0 else (*path(nodes[number]["parent"]), names[nodes[number]["label"]])

    return {path(number): (node["total_ns"], node["calls"]) for number, node in nodes.items()}


@pytest.mark.parametrize("seed", range(8))
def test_paths_add_up_over_threads_and_processes(tmp_path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    processes = [
        Process({f"thread {n}": random_calls(random, 4) for n in range(3)}, name=f"host-{pid}", pid=pid)
        for pid in (1, 2)
    ]
    reel = torchreel.load(write_reel(tmp_path / "run.reel", *processes))
    expected: dict[Path_, tuple[int, int]] = {}
    for process in processes:
        for calls in process.threads.values():
            for key, (total, count) in walked(list(calls)).items():
                had = expected.get(key, (0, 0))
                expected[key] = (had[0] + total, had[1] + count)
    assert by_path(reel) == expected


def test_a_range_has_the_calls_that_began_in_it_with_their_callers(tmp_path: Path) -> None:
    calls = [call("a", 10, call("b", 5)), call("a", 20)]
    reel = torchreel.load(write_reel(tmp_path / "run.reel", Process({"main": calls})))
    assert by_path(reel, 15) == {("a",): (20, 1)}
    assert by_path(reel, 0, 1) == {("a",): (15, 1), ("a", "b"): (5, 1)}
    assert by_path(reel, 100) == {}
