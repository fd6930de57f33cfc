"""Execution traces: what they add to the trace of the same run, and when they add nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.gpu_traces import trace
from tests.ingest.kineto.small import PID, op, rows
from torchreel.errors import NotATraceError, OptionError
from torchreel.ingest import Format, format_of, import_traces
from torchreel.ingest.execution_trace.nodes import read_execution_trace
from torchreel.reel import load

SCHEMA = "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"
INPUTS: dict[str, list[Any]] = {
    "values": [[3, 4, 0, 6, 4, "cuda:0"], [[5, 6, 0, 2, 4, "cuda:0"]], 1, "<None>", [2, 3], True],
    "shapes": [[2, 3], [[2]], [], [], [[], []], []],
    "types": ["Tensor(float)", "GenericList[Tensor(float)]", "Int", "None", "GenericList[Int,Int]", "Bool"],
}
OUTPUTS = {"values": [[7, 8, 0, 6, 4, "cuda:0"]], "shapes": [[2, 3]], "types": ["Tensor(c10::Half)"]}


def node(schema: str, number: int, name: str) -> dict[str, Any]:
    """A node as each schema writes it."""
    if schema == "1.0.1":
        flat = {"inputs": INPUTS["values"], "input_shapes": INPUTS["shapes"], "input_types": INPUTS["types"]}
        flat |= {
            f"output{end}": OUTPUTS[key] for end, key in (("s", "values"), ("_shapes", "shapes"), ("_types", "types"))
        }
        return {"name": name, "id": 2, "rf_id": number, "parent": 1, "op_schema": SCHEMA, **flat}
    attributes = {"rf_id": number, "op_schema": SCHEMA}
    attrs = [{"name": key, "type": "x", "value": value} for key, value in attributes.items()]
    return {"id": 2, "name": name, "ctrl_deps": 1, "inputs": INPUTS, "outputs": OUTPUTS, "attrs": attrs}


def execution(path: Path, schema: str, *nodes: dict[str, Any], pid: int = PID) -> Path:
    path.write_text(json.dumps({"schema": schema, "pid": pid, "time": "now", "nodes": nodes}))
    return path


def profile(path: Path, *events: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"traceEvents": events}))
    return path


@pytest.mark.parametrize("schema", ["1.0.1", "1.0.3-chakra.0.0.4", "1.1.0-chakra.0.0.4"])
@pytest.mark.parametrize("named_by", ["External id", "Record function id"])
def test_arguments_and_results(tmp_path: Path, schema: str, named_by: str) -> None:
    first = op("aten::add", 1, 2, **{"External id": 99, named_by: 7})
    known = op("aten::add", 5, 2, **{"External id": 98, named_by: 8, "Input Dims": [[1]]})
    path = profile(tmp_path / "t.json", first, known, op("aten::mul", 9, 1, **{"External id": 5, named_by: 9}))
    (read,) = import_traces(
        [path, execution(tmp_path / "e.json", schema, node(schema, 7, "aten::add"), node(schema, 8, "aten::add"))],
        tmp_path / "x.reel",
    )
    assert read.joined == {tmp_path / "e.json": 2} and read.warnings() == []
    reel = load(tmp_path / "x.reel")
    said = '{"Output Dims": [[2, 3]], "Output type": ["c10::Half"]}'
    assert rows(reel, "select name, overload, inputs, args from ops order by id") == [
        ("aten::add", "Tensor", 1, said),
        ("aten::add", "Tensor", 0, said),
        ("aten::mul", "", None, None),
    ]
    assert rows(reel, "select dims, dtypes, scalars from inputs where id = 1") == [
        (
            "[[2, 3], [[2]], [], [], [], []]",
            '["float", "TensorList", "Scalar", "", "ScalarList", "Scalar"]',
            '["", "", "1", "", "[2, 3]", "true"]',
        )
    ]
    assert [source["kind"] for source in reel.meta["source"]] == ["trace", "execution trace"]
    assert reel.meta["source"][1]["schema"] == schema


def test_another_run(tmp_path: Path) -> None:
    path = profile(tmp_path / "t.json", op("aten::mul", 1, 2, External_id=7))
    other = execution(tmp_path / "e.json", "1.0.1", node("1.0.1", 7, "aten::add"))
    (read,) = import_traces([path, other], tmp_path / "x.reel")
    assert read.warnings() == [
        f"{other} gives its numbers to other calls than {path}, so it is of another run: nothing of it is used."
    ]
    assert rows(load(tmp_path / "x.reel"), "select inputs, args from ops") == [(None, None)]


def test_alone_or_of_no_process_given(tmp_path: Path) -> None:
    other = execution(tmp_path / "e.json", "1.0.1", node("1.0.1", 7, "aten::add"), pid=3)
    assert format_of(other) is Format.EXECUTION_TRACE
    with pytest.raises(NotATraceError, match="has no times: import it together with the trace of the same run"):
        import_traces([other], tmp_path / "x.reel")
    pair = [profile(tmp_path / f"{name}.json", op("a", 1, 2)) for name in "ab"]
    with pytest.raises(OptionError, match="is an execution trace of process 3, and no trace given is of that process"):
        import_traces([*pair, other], tmp_path / "x.reel")
    assert not (tmp_path / "x.reel").exists()


def test_a_real_pair(tmp_path: Path) -> None:
    names = ("a100_with_execution_trace.json.gz", "a100_with_execution_trace.et.json.gz")
    (read,) = import_traces([trace(name) for name in names], tmp_path / "x.reel")
    assert list(read.joined.values()) == [36]
    query = "select overload, i.dims from ops o join inputs i on i.id = o.inputs where o.name = 'aten::uniform_'"
    assert rows(load(tmp_path / "x.reel"), query) == [("", "[[256, 256], [], [], []]")] * 2


def test_a_real_one_of_the_latest_schema() -> None:
    read = read_execution_trace(trace("resnet_2gpu_1.1.0.et.json.gz"))
    assert (read.pid, len(read.nodes), read.losses.events, read.problem) == (2254958, 14389, 0, None)
    assert read.nodes[7].name == "aten::view" and read.nodes[7].types == ["Tensor(float)", "GenericList[Int]"]


def test_half_a_file(tmp_path: Path) -> None:
    nodes = [node("1.0.1", number, "aten::add") for number in range(1, 50)]
    path = execution(tmp_path / "e.json", "1.0.1", *nodes)
    path.write_text(path.read_text()[: path.stat().st_size // 2])
    read = read_execution_trace(path)
    assert 10 < len(read.nodes) < 40 and read.problem == "it ends early"
