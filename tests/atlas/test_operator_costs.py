"""What a run spent on operators: against the definition, call by call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import torchreel
from tests.analyze.source.test_line_ops import hostile
from tests.synthetic import Call, Process, call, write_reel
from torchreel.atlas.model import Costs
from torchreel.atlas.operator_costs import MOST_SHAPES, Ran, operator_costs

TRAIN = ("/home/me/train.py", 10, "main")
MODEL = ("/home/me/model.py", 5, "Net.forward")


@dataclass
class Differentiated(Process):
    """A process whose backward calls name their forward calls, by id."""

    forward: dict[int, int] = field(default_factory=dict)

    def tables(self) -> dict[str, pa.Table]:
        tables = super().tables()
        ids = range(tables["ops"].num_rows if "ops" in tables else 0)
        if ids:
            forward = pa.array([self.forward.get(number) for number in ids], pa.int64())
            tables["ops"] = tables["ops"].append_column("fwd", forward)
        return tables


def costs(calls: int, forward: int, backward: int, total: int, alloc: int = 0, flops: int | None = None) -> Costs:
    return Costs(calls, forward + backward, forward, backward, total, alloc, flops)


def test_what_is_forward_what_is_backward_and_whose(tmp_path: Path) -> None:
    stack = (MODEL, TRAIN)
    calls = [
        # ids 0 and 1
        call("aten::linear", 2, call("aten::mm", 30, inputs="[[4, 4]]", flops=24, bytes=8, stack=stack), stack=stack),
        # id 2: to another overload of itself, which is not counted again
        call(
            "aten::add", 3, call("aten::add", 4, overload="Scalar", stack=(TRAIN,)), overload="Tensor", stack=(TRAIN,)
        ),
        # ids 4 to 6
        call(
            "autograd::engine::evaluate_function: MmBackward0",
            5,
            call("MmBackward0", 6, call("aten::mm", 50, inputs="[[4, 2]]", bytes=-4, stack=stack), kind="backward"),
        ),
        call("not an operator", 9),
        call("mylib::norm", 7, kind="range"),
        call("mylib::norm", 8),
    ]
    process = Differentiated({"main": calls}, forward={4: 1, 5: 1})
    found = operator_costs(torchreel.load(write_reel(tmp_path / "run.reel", process)))
    mm = costs(2, 30, 50, 80, 8, 24)
    assert found == {
        "aten::add": Ran(
            costs(2, 7, 0, 7),
            Costs(),
            {"Tensor": costs(1, 3, 0, 7), "Scalar": costs(1, 4, 0, 4)},
            [("/home/me/train.py", 10, costs(2, 7, 0, 7))],
        ),
        "aten::linear": Ran(
            costs(1, 2, 0, 32), Costs(), {"": costs(1, 2, 0, 32)}, [("/home/me/model.py", 5, costs(1, 2, 0, 32))]
        ),
        "aten::mm": Ran(
            mm,
            costs(1, 0, 56, 56),
            {"": mm},
            [("/home/me/model.py", 5, mm)],
            [("[[4, 2]]", costs(1, 0, 50, 50)), ("[[4, 4]]", costs(1, 30, 0, 30, 8, 24))],
        ),
        "mylib::norm": Ran(costs(1, 8, 0, 8), Costs(), {"": costs(1, 8, 0, 8)}),
    }


def test_the_backward_of_an_operator_that_is_called_in_a_backward(tmp_path: Path) -> None:
    inner = call("InnerBackward0", 4, call("aten::mul", 8), kind="backward")
    calls = [
        call("aten::outer", 1),
        call("aten::inner", 1),
        call("OuterBackward0", 2, inner, call("aten::mul", 16), kind="backward"),
    ]
    process = Differentiated({"main": calls}, forward={2: 0, 3: 1})
    found = operator_costs(torchreel.load(write_reel(tmp_path / "run.reel", process)))
    assert found["aten::outer"].backward == costs(1, 0, 18, 18)
    assert found["aten::inner"].backward == costs(1, 0, 12, 12)


def random_calls(random: np.random.Generator, depth: int) -> list[Call]:
    frames = (TRAIN, MODEL, ("/home/me/train.py", 12, "main"))
    made = []
    for _ in range(int(random.integers(1, 4))):
        stack = tuple(frames[n] for n in random.integers(0, 3, size=int(random.integers(1, 3))))
        kind = str(random.choice(["op", "op", "op", "backward", "range"]))
        made.append(
            call(
                f"aten::op{int(random.integers(4))}" if kind != "range" else "a range",
                int(random.integers(0, 1_000)),
                *(random_calls(random, depth - 1) if depth else ()),
                kind=kind,
                overload=str(random.choice(["", "out"])),
                inputs=f"[[{int(random.integers(14))}]]" if random.random() < 0.9 else None,
                stack=stack if random.random() < 0.9 else None,
                flops=int(random.integers(100)) if random.random() < 0.5 else None,
                bytes=int(random.integers(-50, 50)),
            )
        )
    return made


Row = dict[str, Any]


class Definition:
    """The costs by walks from call to call, in plain Python."""

    def __init__(self, reel: torchreel.Reel) -> None:
        self.rows: list[Row] = reel.ops.to_pylist()
        self.by_id = {(row["process"], row["id"]): row for row in self.rows}
        frames = {(row["process"], row["id"]): (row["file"], row["line"]) for row in reel.frames.to_pylist()}
        self.lines = {
            (row["process"], row["id"]): frames[row["process"], row["frames"][0]] for row in reel.stacks.to_pylist()
        }
        self.dims = {(row["process"], row["id"]): row["dims"] for row in reel.inputs.to_pylist()}

    def around(self, row: Row) -> Iterator[Row]:
        while row["parent"] is not None:
            row = self.by_id[row["process"], row["parent"]]
            yield row

    def is_operator(self, row: Row) -> bool:
        return row["kind"] == "op" and row["name"].count("::") == 1

    def sum(self, keys: Callable[[Row], Any], same: Callable[[Row], Any]) -> dict[Any, Costs]:
        """The costs of operators by `keys`; in the total calls count that have none around them which is the same."""
        found: dict[Any, Costs] = {}
        for row in filter(self.is_operator, self.rows):
            key = keys(row)
            if key is None:
                continue
            sums = found.setdefault(key, Costs())
            self.add(sums, row, any(each["kind"] == "backward" for each in (row, *self.around(row))))
            if not any(self.is_operator(each) and same(each) == same(row) for each in self.around(row)):
                sums.total_ns += row["dur_ns"]
        return found

    def add(self, sums: Costs, row: Row, backward: bool) -> None:
        sums.calls += 1
        sums.self_ns += row["self_ns"]
        if backward:
            sums.backward_ns += row["self_ns"]
        else:
            sums.forward_ns += row["self_ns"]
        sums.alloc_bytes += max(row["self_alloc_bytes"] or 0, 0)
        if row["flops"] is not None:
            sums.flops = (sums.flops or 0) + row["flops"]

    def backward(self) -> dict[str, Costs]:
        found: dict[str, Costs] = {}
        for row in self.rows:
            inside = [each for each in (row, *self.around(row)) if each["kind"] == "backward"]
            differentiated = [each for each in inside if each["fwd"] is not None]
            forward = self.by_id.get((row["process"], differentiated[0]["fwd"])) if differentiated else None
            if forward is not None and self.is_operator(forward):
                sums = found.setdefault(forward["name"], Costs())
                self.add(sums, row, True)
                sums.calls -= row["kind"] != "backward"
                sums.total_ns = sums.self_ns
        return found


@pytest.mark.parametrize("seed", range(10))
def test_against_the_definition_call_by_call(tmp_path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    processes = []
    for pid in (1, 2):
        process = Differentiated({f"thread {n}": random_calls(random, 4) for n in range(2)}, f"host-{pid}", pid)
        rows = process.tables()["ops"].to_pylist()
        backward = [row["id"] for row in rows if row["kind"] == "backward"]
        # Some name no call at all.
        process.forward = {
            number: int(random.integers(1, len(rows) + 5)) for number in backward if random.random() < 0.8
        }
        processes.append(process)
    reel = torchreel.load(write_reel(tmp_path / "run.reel", *processes))
    truth = Definition(reel)

    def name_of(row: Row) -> Any:
        return row["name"]

    def line_of(row: Row) -> Any:
        return (row["name"], *truth.lines[row["process"], row["stack"]]) if row["stack"] is not None else None

    def dims_of(row: Row) -> Any:
        return (row["name"], truth.dims[row["process"], row["inputs"]]) if row["inputs"] is not None else None

    found = operator_costs(reel)
    assert {name: ran.costs for name, ran in found.items()} == truth.sum(name_of, name_of)
    overloads = {(name, one): costs for name, ran in found.items() for one, costs in ran.overloads.items()}
    assert overloads == truth.sum(*[lambda row: (row["name"], row["overload"])] * 2)
    lines = {(name, *line[:2]): line[2] for name, ran in found.items() for line in ran.lines}
    assert lines == truth.sum(line_of, name_of)
    backward = {name: ran.backward for name, ran in found.items() if ran.backward.calls}
    assert backward == {name: costs for name, costs in truth.backward().items() if costs.calls}
    shapes = truth.sum(dims_of, name_of)
    for name, ran in found.items():
        wanted = [(key[1], costs) for key, costs in shapes.items() if key[0] == name]
        wanted.sort(key=lambda one: (-one[1].total_ns, -one[1].self_ns, one[0]))
        assert ran.shapes == wanted[:MOST_SHAPES]


@pytest.mark.parametrize("calls", [[], [call("a range", 5, kind="range")]], ids=["no ops", "no operators"])
def test_nothing_to_count(tmp_path: Path, calls: list[Call]) -> None:
    assert operator_costs(torchreel.load(write_reel(tmp_path / "run.reel", Process({"main": calls})))) == {}


def test_a_hostile_reel(tmp_path: Path) -> None:
    assert operator_costs(hostile(tmp_path / "run.reel")) == {}  # a name with markup is no operator's


@pytest.mark.programs
def test_a_recorded_run(tmp_path: Path) -> None:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    with torchreel.record(tmp_path / "run.reel", stacks=True, memory=True, flops=True, shapes=True):
        model(torch.randn(8, 16)).sum().backward()
    reel = torchreel.load(tmp_path / "run.reel")
    truth, found = Definition(reel), operator_costs(reel)
    assert {name: ran.costs for name, ran in found.items()} == truth.sum(*[lambda row: row["name"]] * 2)
    backward = {name: ran.backward for name, ran in found.items() if ran.backward.calls}
    assert backward == truth.backward()
    assert backward["aten::addmm"].calls == 2
    assert [dims for dims, _ in found["aten::relu"].shapes] == ["[[8, 16]]"]
