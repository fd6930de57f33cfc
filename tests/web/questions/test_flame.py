"""The flame graph against walking each call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import torchreel
from tests.synthetic import START, Call, Process, call, write_reel
from tests.web.gpu_reel import write_ranks
from torchreel.analyze import averages
from torchreel.errors import OptionError
from torchreel.web.query import Query
from torchreel.web.questions import flame as question
from torchreel.web.questions.flame import flame
from torchreel.web.viewed_reel import ViewedReel

Way = tuple[str, ...]
OF = ("time", "flops", "bytes", "calls")


@dataclass(frozen=True)
class Walked:
    """One call: when it began, the way to it, and what it cost itself."""

    start: int
    way: Way
    stack: Way
    module: Way
    cost: dict[str, int]


def random_calls(random: np.random.Generator, depth: int) -> list[Call]:
    modules = (None, "Net", "Net.a", "Net.a.b", "Net.c")
    lines = (("/src/a.py", 1, "main"), ("/src/b.py", 2, "forward"), ("/src/b.py", 3, "forward"))

    def one() -> Call:
        frames = tuple(lines[int(n)] for n in random.integers(3, size=int(random.integers(1, 4))))
        return call(
            f"call {int(random.integers(4))}",
            int(random.integers(1, 100)),
            *(random_calls(random, depth - 1) if depth and random.random() < 0.7 else ()),
            flops=int(random.integers(1, 9)) if random.random() < 0.5 else None,
            bytes=int(random.integers(-5, 9)) if random.random() < 0.5 else None,
            module=modules[int(random.integers(len(modules)))],
            stack=frames if random.random() < 0.8 else None,
        )

    return [one() for _ in range(int(random.integers(1, 4)))]


def walk(calls: list[Call], start: int = 0, above: Way = ()) -> Iterator[Walked]:
    for item in calls:
        way = (*above, item.name)
        stack = tuple(f"src/{file[5:]}:{line} {function}" for file, line, function in reversed(item.stack or ()))
        parts = item.module.split(".") if item.module else []
        module = tuple(f"{'.'.join(parts[: n + 1])}: Module" for n in range(len(parts)))
        cost = {"time": item.self_ns, "flops": item.flops or 0, "bytes": max(item.bytes or 0, 0), "calls": 1}
        yield Walked(
            start, way, (*(stack or ("(no stack)",)), item.name), (*(module or ("(no module)",)), item.name), cost
        )
        yield from walk(list(item.children), start, way)
        start += item.dur_ns


def totals(walked: list[Walked], by: str, of: str) -> dict[Way, tuple[int, int]]:
    """The total and the own part of each way that leads to anything."""
    found: dict[Way, list[int]] = {}
    for item in walked:
        way = {"call": item.way, "stack": item.stack, "module": item.module}[by]
        for end in range(1, len(way) + 1):
            sums = found.setdefault(way[:end], [0, 0])
            sums[0] += item.cost[of]
            sums[1] += item.cost[of] * (end == len(way))
    return {way: (total, own) for way, (total, own) in found.items() if total}


def ways(answer: dict[str, Any], part: dict[str, Any] | None = None, chosen: str = "") -> dict[Way, tuple[int, int]]:
    nodes = (part or answer)["nodes"]
    assert (part or answer)["left_out"] == 0
    found: list[Way] = []
    for parent, label in zip(nodes["parent"], nodes["label"], strict=True):
        name = chosen if label < 0 else answer["names"][label][0]
        found.append((*(found[parent] if parent >= 0 else ()), name))
    assert len(set(found)) == len(found)
    return {way: (total, own) for way, total, own in zip(found, nodes["total"], nodes["self"], strict=True)}


def ask(reel: torchreel.Reel, **values: object) -> dict[str, Any]:
    return flame(ViewedReel(reel), Query({name: str(value) for name, value in values.items()}))


@pytest.fixture(params=range(2))
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[torchreel.Reel, list[Walked]]:
    random = np.random.default_rng(request.param)
    processes = [
        Process({f"thread {n}": random_calls(random, 4) for n in range(3)}, name=f"host-{pid}", pid=pid, first_id=pid)
        for pid in (1, 2)
    ]
    walked = [each for process in processes for calls in process.threads.values() for each in walk(list(calls))]
    return torchreel.load(write_reel(tmp_path / "run.reel", *processes)), walked


@pytest.mark.parametrize("by", ["call", "stack", "module"])
@pytest.mark.parametrize("of", OF)
def test_every_way_is_the_sum_of_its_calls(recorded: tuple[torchreel.Reel, list[Walked]], by: str, of: str) -> None:
    reel, walked = recorded
    answer = ask(reel, by=by, of=of)
    assert ways(answer) == totals(walked, by, of)
    assert answer["whole"] == sum(item.cost[of] for item in walked)


def test_the_whole_is_that_of_the_op_table(recorded: tuple[torchreel.Reel, list[Walked]]) -> None:
    reel, _ = recorded
    expected = sum(row["self_ns"] for row in averages(reel).to_pylist())
    assert [ask(reel, by=by)["whole"] for by in ("call", "stack", "module")] == [expected] * 3


def test_kernels_are_not_time_of_calls(tmp_path: Path) -> None:
    reel = torchreel.load(write_ranks(tmp_path / "ranks.reel", ranks=2, steps=2))
    answer = ask(reel, by="call")
    assert answer["whole"] == sum(row["self_ns"] for row in averages(reel).to_pylist())
    shown = {answer["names"][label][0] for label in answer["nodes"]["label"]}
    assert shown == set(reel.table("ops", ["name"])["name"].to_pylist())


@pytest.mark.parametrize("by", ["call", "stack", "module"])
@pytest.mark.parametrize("of", ["time", *(pytest.param(of, marks=pytest.mark.long) for of in OF[1:])])
def test_a_range_has_the_calls_that_began_in_it(
    recorded: tuple[torchreel.Reel, list[Walked]], by: str, of: str
) -> None:
    """Also below a call that began before it, which is there with what of it began in the range."""
    reel, walked = recorded
    last = max(item.start for item in walked)
    for begin, end in ((0, last), (last // 3, 2 * last // 3), (last // 2, last // 2 + 40), (last, last + 1)):
        inside = [item for item in walked if begin <= item.start < end]
        answer = ask(reel, by=by, of=of, begin=begin, end=end)
        assert ways(answer) == totals(inside, by, of), (begin, end)
        table = averages(reel, within=(START + begin, START + end)).to_pylist()
        if of == "time":
            assert answer["whole"] == sum(row["self_ns"] for row in table)


def test_a_name_has_its_callers_and_its_callees(recorded: tuple[torchreel.Reel, list[Walked]]) -> None:
    """Of all places where it occurs; within itself it counts once."""
    reel, walked = recorded
    for chosen in ("call 0", "call 3"):
        answer = ask(reel, name=chosen)
        callers: dict[Way, int] = {}
        callees: dict[Way, int] = {}
        for item in walked:
            if chosen not in item.way:
                continue
            first = item.way.index(chosen)
            below = item.way[first:]
            for end in range(1, len(below) + 1):
                callees[below[:end]] = callees.get(below[:end], 0) + item.cost["time"]
            outward = tuple(reversed(item.way[: first + 1]))
            for end in range(1, len(outward) + 1):
                callers[outward[:end]] = callers.get(outward[:end], 0) + item.cost["time"]
        for part, expected in (("callers", callers), ("callees", callees)):
            shown = {way: total for way, (total, _) in ways(answer, answer[part], chosen).items()}
            assert shown == expected, part


def test_a_search_tells_the_share_of_what_it_found(recorded: tuple[torchreel.Reel, list[Walked]]) -> None:
    """Calls within calls that match are not counted twice."""
    reel, walked = recorded
    for text in ("CALL 1", "call", "nothing"):
        answer = ask(reel, q=text)
        expected = sum(item.cost["time"] for item in walked if any(text.lower() in name for name in item.way))
        assert answer["matched"] == expected
        assert [name for name, *_, hit in answer["names"] if hit] == [
            name for name, *_ in answer["names"] if text.lower() in name
        ]


def test_the_widest_nodes_are_a_tree(recorded: tuple[torchreel.Reel, list[Walked]], monkeypatch: Any) -> None:
    reel, _ = recorded
    every = ask(reel)["nodes"]["total"]
    monkeypatch.setattr(question, "MOST_NODES", 7)
    answer = ask(reel)
    assert answer["nodes"]["total"] == every[:7] and answer["left_out"] == len(every) - 7
    assert all(parent < number for number, parent in enumerate(answer["nodes"]["parent"]))


def test_calls_within_asynchronous_ones_are_not_given_to_others(tmp_path: Path) -> None:
    calls = [call("a", 10), call("later", 10, call("b", 5), asynchronous=True), call("c", 10)]
    reel = torchreel.load(write_reel(tmp_path / "run.reel", Process({"main": calls})))
    assert ways(ask(reel)) == {("a",): (10, 10), ("c",): (10, 10), ("b",): (5, 5)}


def test_an_empty_reel_and_a_range_without_calls(tmp_path: Path) -> None:
    empty = torchreel.load(write_reel(tmp_path / "empty.reel", Process({})))
    for by in ("call", "stack", "module"):
        answer = ask(empty, by=by, name="x", q="x")
        assert (answer["whole"], answer["nodes"]["total"], answer["matched"]) == (0, [], 0)
        assert answer["callers"]["nodes"]["total"] == answer["callees"]["nodes"]["total"] == []


@pytest.mark.parametrize("wrong", [{"by": "colour"}, {"of": "beauty"}, {"q": "x" * 201}])
def test_what_cannot_be_asked_is_a_sentence(tmp_path: Path, wrong: dict[str, str]) -> None:
    reel = torchreel.load(write_reel(tmp_path / "run.reel", Process({"main": [call("a", 1)]})))
    with pytest.raises(OptionError, match=r"none of|at most 200"):
        ask(reel, **wrong)
