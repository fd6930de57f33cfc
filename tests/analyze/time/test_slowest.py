"""The slowest calls of a row are the calls that the row counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import torchreel
from tests.synthetic import START, Call, Process, call, write_reel
from torchreel.analyze import averages
from torchreel.analyze.time.averages import GROUPS
from torchreel.analyze.time.slowest import slowest
from torchreel.errors import OptionError


def random_calls(random: np.random.Generator, count: int) -> list[Call]:
    return [
        call(
            f"op {int(random.integers(3))}",
            int(random.integers(1, 1000)),
            overload=("", "out")[int(random.integers(2))],
            inputs=(None, "[[2]]", "[[3, 4]]")[int(random.integers(3))],
            module=(None, "Net", "Net.a")[int(random.integers(3))],
            stack=(None, (("/src/a.py", 1, "main"),), (("/src/a.py", 2, "main"),))[int(random.integers(3))],
            step=(None, 0, 1)[int(random.integers(3))],
            kind=("op", "backward")[int(random.integers(2))],
        )
        for _ in range(count)
    ]


@pytest.fixture(scope="module")
def reel(tmp_path_factory: pytest.TempPathFactory) -> torchreel.Reel:
    random = np.random.default_rng(0)
    processes = [
        Process({"main": random_calls(random, 60), "worker": random_calls(random, 30)}, name=f"host-{pid}", pid=pid)
        for pid in (1, 2)
    ]
    return torchreel.load(write_reel(tmp_path_factory.mktemp("slowest") / "run.reel", *processes))


@pytest.mark.parametrize(
    "by", [*((group,) for group in GROUPS), ("name", "inputs", "module"), ("name", "line", "step")]
)
def test_a_row_opens_to_the_calls_that_it_counted(reel: torchreel.Reel, by: tuple[str, ...]) -> None:
    for row in averages(reel, by).to_pylist()[:4]:
        where = {group: "" if row[group] is None else str(row[group]) for group in by}
        calls = slowest(reel, where, limit=1000).to_pylist()
        assert (len(calls), sum(each["self_ns"] for each in calls)) == (row["calls"], row["self_ns"])
        lengths = [each["dur_ns"] for each in calls]
        assert lengths == sorted(lengths, reverse=True)
        assert slowest(reel, where, limit=3).to_pylist() == calls[:3]


def test_a_range_and_what_a_call_has(tmp_path: Path) -> None:
    calls = [call("a", 5), call("a", 9, inputs="[[2]]", step=4), call("a", 7)]
    reel = torchreel.load(write_reel(tmp_path / "run.reel", Process({"main": calls})))
    rows = slowest(reel, {"name": "a"}, within=(START + 5, START + 14)).to_pylist()
    assert rows == [
        {
            **{"process": 0, "id": 1, "name": "a", "kind": "op", "start_ns": START + 5, "dur_ns": 9, "self_ns": 9},
            **{"step": 4, "thread": 0, "thread_name": "main", "inputs": "[[2]]", "tape_index": None},
        }
    ]


def test_texts_are_values_and_never_sql(reel: torchreel.Reel) -> None:
    for text in ("' OR true --", "$1", '"', "op 1' --"):
        assert slowest(reel, {"name": text, "module": text}).num_rows == 0


def test_what_cannot_be_chosen_by_is_a_sentence(reel: torchreel.Reel) -> None:
    with pytest.raises(OptionError, match="Calls cannot be chosen by 'colour'"):
        slowest(reel, {"colour": "red"})
    with pytest.raises(OptionError, match="A limit of 0 calls"):
        slowest(reel, {"name": "a"}, limit=0)
