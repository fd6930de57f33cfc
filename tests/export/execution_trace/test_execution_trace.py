"""Tapes as execution traces: held against what torch's own observer writes of the same step."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ExecutionTraceObserver

from tests.export.reels import ProcessBuilder, build
from tests.program.small import small_data, small_program
from torchreel.errors import NotATapeError, OptionError
from torchreel.export import export
from torchreel.export.execution_trace.values import Ids, Values
from torchreel.program.file.file import write_tape
from torchreel.program.model import Complex, Device, Formula, Generator, Named, Object, Program, Ref, Slot, StorageOf
from torchreel.tape.capture.trace import trace

Node = dict[str, Any]


def trace_of(program: Program, directory: Path) -> Node:
    export(program, directory / "et.json", "execution-trace")
    document: Node = json.loads((directory / "et.json").read_text(), parse_constant=lambda text: pytest.fail(text))
    return document


def attribute(node: Node, name: str) -> Any:
    (value,) = [entry["value"] for entry in node["attrs"] if entry["name"] == name]
    return value


def training_step() -> tuple[Any, list[torch.Tensor]]:
    torch.manual_seed(3)
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.LayerNorm(8), torch.nn.Dropout(0.25), torch.nn.GELU(), torch.nn.Linear(8, 2)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9, momentum=0.9, foreach=True)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y) * 2.0
        loss.backward()
        optimizer.step()
        first, _ = x.split([1, 2])
        return loss + first[:, torch.tensor([0, 2])].clamp(min=0.5).sum()

    return step, [torch.randn(3, 4), torch.randn(3, 2)]


def observed(step: Any, inputs: list[torch.Tensor], path: Path) -> Node:
    observer = ExecutionTraceObserver()
    observer.register_callback(str(path))
    observer.start()
    step(*inputs)
    observer.stop()
    observer.unregister_callback()
    document: Node = json.loads(path.read_text())
    return document


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Node, Node]:
    """One step of the same program: ours, and the observer's."""
    directory = tmp_path_factory.mktemp("traces")
    step, inputs = training_step()
    step(*inputs)
    theirs = observed(step, inputs, directory / "theirs.json")
    return trace_of(trace(step, *inputs).program, directory), theirs


def test_fields_and_their_order_are_those_of_the_observer(both: tuple[Node, Node]) -> None:
    ours, theirs = both
    assert list(ours) == list(theirs)
    assert ours["schema"] == theirs["schema"]
    for key in ours:
        assert type(ours[key]) is type(theirs[key])
    for ends in (0, -1):  # a thread, the process
        node, other = ours["nodes"][ends], theirs["nodes"][ends]
        assert {**node, "attrs": None} == {**other, "attrs": None}
        assert node["attrs"] == other["attrs"]
    for node in ours["nodes"]:
        assert list(node) == list(theirs["nodes"][1])
        assert [(entry["name"], entry["type"]) for entry in node["attrs"]] == [
            (entry["name"], entry["type"]) for entry in theirs["nodes"][1]["attrs"]
        ]


def test_each_op_is_one_of_the_observers(both: tuple[Node, Node]) -> None:
    ours, theirs = both
    wanted = [described(node) for node in ours["nodes"] if attribute(node, "op_schema")]
    # The tape reads the learning rate anew at each replay: an op that the program itself has not.
    wanted = [op for op in wanted if op[0] != "aten::_local_scalar_dense"]
    found = iter(described(node) for node in sorted(theirs["nodes"], key=lambda node: int(node["id"])))
    assert len(wanted) > 40
    for op in wanted:
        assert any(op == other for other in found), f"the observer has no {op} after the op before it"


def described(node: Node) -> tuple[Any, ...]:
    """What a node says that does not depend on who counts tensors."""
    sides = []
    for side in ("inputs", "outputs"):
        table = node[side]
        # An undefined tensor is None to a tape.
        kinds = [kind.replace("Tensor(nullptr (uninitialized))", "None") for kind in table["types"]]
        sides.append(([without_ids(value) for value in table["values"]], table["shapes"], kinds, table["strides"]))
    return node["name"], attribute(node, "op_schema"), sides


def without_ids(value: Any) -> Any:
    if isinstance(value, list) and len(value) == 6 and isinstance(value[5], str):  # a tensor
        return value[2:] if value[5] else "<None>"
    if isinstance(value, list):
        return [without_ids(part) for part in value]
    return round(value, 6) if isinstance(value, float) else value


def test_storages_are_shared_where_the_observer_says_so(both: tuple[Node, Node]) -> None:
    """The first op that reads a weight transposed: a view of it has the weight's storage."""
    for document in both:
        (view, *_) = [node for node in document["nodes"] if node["name"] == "aten::t"]
        (weight,), (transposed,) = view["inputs"]["values"], view["outputs"]["values"]
        assert weight[0] != transposed[0] and weight[1] == transposed[1]


def tensors(table: Node) -> Iterator[list[Any]]:
    for value, kind in zip(table["values"], table["types"], strict=True):
        if kind.startswith("Tensor"):
            yield value
        elif kind.startswith("GenericList[Tensor") or kind.startswith("GenericList[None,Tensor"):
            yield from (part for part in value if isinstance(part, list))


def check_consistency(document: Node) -> None:
    nodes = document["nodes"]
    ids = [node["id"] for node in nodes]
    assert len(set(ids)) == len(ids)
    known = set(ids)
    assert all(node["ctrl_deps"] in known for node in nodes)
    used, made, storages = set(), set(), set()
    for node in nodes:
        for tensor in tensors(node["inputs"]):
            used.add(tensor[0])
            storages.add(tensor[1])
        for tensor in tensors(node["outputs"]):
            made.add(tensor[0])
            storages.add(tensor[1])
        for side in ("inputs", "outputs"):
            table = node[side]
            assert len({len(table[column]) for column in ("values", "shapes", "types", "strides")}) == 1
    assert not known & (used | made) and not known & (storages - {0}) and not (used | made) & (storages - {0})
    calls = [attribute(node, "rf_id") for node in nodes if attribute(node, "rf_id")]
    assert sorted(calls) == list(range(1, len(calls) + 1))


def test_ids_are_consistent(both: tuple[Node, Node]) -> None:
    check_consistency(both[0])


def test_tensors_are_given_or_made_before(both: tuple[Node, Node]) -> None:
    """What no node before made, no node later makes for the first time: it came from outside."""
    ops = [node for node in both[0]["nodes"] if attribute(node, "op_schema")]
    made: set[int] = set()
    given: set[int] = set()
    for node in ops:
        given.update(tensor[0] for tensor in tensors(node["inputs"]) if tensor[0] not in made)
        made.update(tensor[0] for tensor in tensors(node["outputs"]) if tensor[0] not in given)
    assert 12 <= len(given) <= 30  # 6 parameters, their momentum, the inputs, an index, numbers
    assert not given & made


def test_an_op_of_backward_has_the_sequence_number_of_its_forward_op(both: tuple[Node, Node]) -> None:
    numbered: dict[int, list[Node]] = {}
    for node in both[0]["nodes"]:
        if attribute(node, "seq_id") >= 0:
            numbered.setdefault(attribute(node, "seq_id"), []).append(node)
    names = {tuple(node["name"] for node in nodes) for nodes in numbered.values()}
    assert ("aten::native_layer_norm", "aten::native_layer_norm_backward") in names
    assert ("aten::gelu", "aten::gelu_backward") in names
    forward, backward = (next(nodes) for nodes in map(iter, [numbered[min(numbered)], numbered[min(numbered)][1:]]))
    assert attribute(forward, "fw_tid") == 0 and attribute(backward, "fw_tid") == 1


def test_values_of_all_kinds() -> None:
    program = small_program()
    program.slots.append(Slot(7, "float32", (2, 2), (), layout="sparse_coo"))
    values = [
        *[None, True, 3, 1e-9, math.inf, math.nan, 'a "b"', Device("cuda:1"), Complex(1.0, 2.0), Generator(0)],
        *[Object(0), StorageOf(1), Formula((1.0,), 0.5), Named("dtype", "bfloat16"), Named("layout", "sparse_coo")],
        *[Named("memory_format", "channels_last"), [], [1, 2], [None, Ref(2)], Ref(7)],
    ]
    table = Values(program, Ids()).table(values)
    assert list(zip(table["values"], table["types"], strict=True)) == [
        ("<None>", "None"),
        (True, "Bool"),
        (3, "Int"),
        (1e-9, "Double"),
        ("inf", "Double"),
        ("nan", "Double"),
        ('a "b"', "String"),
        ("cuda:1", "Device"),
        ("<ComplexDouble>", "ComplexDouble"),
        ("<Generator>", "Generator"),
        ("<Object>", "Object"),
        ("<Storage>", "Storage"),
        (0.5, "Double"),
        (15, "Int"),
        (1, "Int"),
        (2, "Int"),
        ([], "GenericList[]"),
        ([1, 2], "GenericList[Int,Int]"),
        (["<None>", [1, 2, 2, 3, 4, "cpu"]], "GenericList[None,Tensor(float)]"),
        ([3, 0, 0, 0, 0, ""], "Tensor(float)"),
    ]
    assert table["shapes"][-4:] == [[], [[], []], [[], [3]], [2, 2]]
    assert table["strides"][-4:] == [[], [[], []], [[], [3]], [0, 0]]


@pytest.mark.filterwarnings("ignore:ComplexHalf", "ignore:torch.quantize")
def test_the_names_of_elements_are_those_of_the_observer(tmp_path: Path) -> None:
    """An empty tensor of each dtype, by both."""
    dtypes = {
        str(value).removeprefix("torch."): value for value in vars(torch).values() if isinstance(value, torch.dtype)
    }
    document = observed(lambda: [torch.empty(2, dtype=dtype) for dtype in dtypes.values()], [], tmp_path / "t.json")
    made = [node for node in document["nodes"] if node["name"] == "aten::empty"]
    numbers = {node["inputs"]["values"][1]: node["outputs"]["types"][0] for node in made}
    program = small_program()
    program.slots = [Slot(0, name, (2,), (1,)) for name in dtypes]
    kinds = Values(program, Ids()).table([Ref(place) for place in range(len(dtypes))])["types"]
    ours = Values(program, Ids()).table([Named("dtype", name) for name in dtypes])["values"]
    assert dict(zip(ours, kinds, strict=True)) == numbers


def test_a_program_by_hand(tmp_path: Path) -> None:
    document = trace_of(small_program(), tmp_path)
    check_consistency(document)
    names = [node["name"] for node in document["nodes"]]
    assert names.count("[pytorch|profiler|execution_trace|thread]") == 2  # one op ran on another thread
    assert names[-2:] == ["ProfilerStep#0", "[pytorch|profiler|execution_trace|process]"]
    (opaque,) = [node for node in document["nodes"] if node["name"] == "## torchreel::opaque ##"]
    assert attribute(opaque, "op_schema") == ""


def test_progress_is_that_of_ops(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    export(small_program(), tmp_path / "et.json", "execution-trace", lambda done, total: seen.append((done, total)))
    assert seen[-1] == (9, 9)


def test_a_program_has_no_timeline(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="A tape cannot be exported to 'chrome': choose one of execution-trace"):
        export(small_program(), tmp_path / "x", "chrome")


def test_a_reel_is_exported_if_it_holds_one_tape(tmp_path: Path) -> None:
    reel = build(tmp_path / "r.reel", ProcessBuilder("a-1", 1))
    with pytest.raises(NotATapeError, match=r"r\.reel holds no tape, which an execution trace is made of: record with"):
        export(reel, tmp_path / "et.json", "execution-trace")
    write_tape(tmp_path / "r.reel" / "a-1" / "step-1.tape", small_program(), small_data())
    export(reel, tmp_path / "et.json", "execution-trace")
    assert json.loads((tmp_path / "et.json").read_text()) == trace_of(small_program(), tmp_path)
    write_tape(tmp_path / "r.reel" / "a-1" / "step-2.tape", small_program(), small_data())
    with pytest.raises(
        NotATapeError, match=r"holds 2 tapes, and an execution trace is of one: name one of them, such as"
    ):
        export(reel, tmp_path / "other.json", "execution-trace")
    assert not (tmp_path / "other.json").exists()
