"""Averages over trees of calls whose times can be added up by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import torchreel
from tests.synthetic import START, Call, Process, call, write_reel
from torchreel.analyze import averages
from torchreel.errors import OptionError

HERE = ("/src/train.py", 10, "main")
FORWARD = ("/src/model.py", 5, "Net.forward")


def linear(self_ns: int = 10, dims: str = "[[2, 3], [3, 4], []]", **fields: Any) -> Call:
    return call("aten::linear", self_ns, call("aten::addmm", 30, inputs=dims, flops=24, bytes=8, **fields), **fields)


@pytest.fixture
def reel(tmp_path: Path) -> torchreel.Reel:
    """One step of a model with two layers: forward on the main thread, backward on another."""
    forward = call(
        "step",
        5,
        call(
            "nn.Module: Net",
            2,
            call(
                "nn.Module: Linear", 1, linear(module="Net.fc", stack=(FORWARD, HERE)), kind="module", module="Net.fc"
            ),
            call("aten::relu", 7, module="Net", stack=(FORWARD, HERE)),
            call("nn.Module: Linear", 1, linear(20, module="Net.out"), kind="module", module="Net.out"),
            kind="module",
            module="Net",
        ),
        call("main", 3, call("aten::sum", 4, step=1), kind="python"),
        kind="range",
        step=0,
    )
    backward = call("AddmmBackward0", 6, call("aten::mm", 50, module="Net.fc"), kind="backward", module="Net.fc")
    process = Process({"MainThread": [forward], "pt_autograd_0": [backward]})
    return torchreel.load(write_reel(tmp_path / "run.reel", process))


def rows(table: pa.Table, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[column] for column in columns) for row in table.to_pylist()]


def test_a_range_has_the_calls_that_began_in_it(tmp_path: Path) -> None:
    calls = [call("a", 10), call("b", 20, call("c", 3)), call("a", 5)]
    reel = torchreel.load(write_reel(tmp_path / "run.reel", Process({"main": calls})))
    inside = averages(reel, within=(START + 10, START + 33))
    assert rows(inside, "name", "calls", "self_ns", "total_ns") == [("b", 1, 20, 23), ("c", 1, 3, 3)]
    assert averages(reel, within=(START, START + 100)).equals(averages(reel))
    assert averages(reel, within=(START + 100, START + 200)).num_rows == 0


def test_name_is_the_table_of_torch_profiler(reel: torchreel.Reel) -> None:
    table = averages(reel)
    # The range has its own 5 ns, 4 of the modules in it and 3 of Python in it.
    assert rows(table, "name", "calls", "self_ns", "total_ns", "average_ns") == [
        ("aten::addmm", 2, 60, 60, 30),
        ("aten::mm", 1, 50, 50, 50),
        ("aten::linear", 2, 30, 90, 45),
        ("step", 1, 12, 113, 113),
        ("aten::relu", 1, 7, 7, 7),
        ("AddmmBackward0", 1, 6, 56, 56),
        ("aten::sum", 1, 4, 4, 4),
    ]
    total = sum(table["self_ns"].to_pylist())
    assert total == 169
    assert table["self_percent"].to_pylist() == pytest.approx([100 * ns / total for ns in table["self_ns"].to_pylist()])
    assert table["total_percent"].to_pylist() == pytest.approx(
        [100 * ns / total for ns in table["total_ns"].to_pylist()]
    )


def test_columns_and_types(reel: torchreel.Reel) -> None:
    numbers = ["calls", "self_ns", "total_ns", "average_ns", "alloc_bytes", "self_alloc_bytes", "flops"]
    schema = averages(reel, by=["name", "step"]).schema
    assert schema.names == [
        *("name", "step", "calls", "self_ns", "self_percent", "total_ns", "total_percent", "average_ns"),
        *("alloc_bytes", "self_alloc_bytes", "flops"),
    ]
    assert {schema.field(name).type for name in numbers} == {pa.int64()}
    assert schema.field("step").type == pa.int32()
    assert schema.field("self_percent").type == pa.float64()


def test_own_time_of_hidden_calls_goes_to_the_call_around_them(reel: torchreel.Reel) -> None:
    # THEN the range has its own 5, the modules' 2 + 1 + 1 and Python's 3; shown, they have their own
    hidden = dict(rows(averages(reel), "name", "self_ns"))
    shown = dict(rows(averages(reel, kinds=["range", "op", "module", "python"]), "name", "self_ns"))
    assert hidden["step"] == 12
    assert shown["step"] == 5
    assert (shown["nn.Module: Net"], shown["nn.Module: Linear"], shown["main"]) == (2, 2, 3)


def test_an_op_passed_on_to_another_overload_is_one_call(tmp_path: Path) -> None:
    """aten::sum calls aten::sum.dim_IntList: torch.profiler's table has one call there, and so has ours."""
    inner = call("aten::sum", 30, call("aten::fill_", 5), overload="dim_IntList", inputs="[[2], [], []]")
    calls = [call("aten::sum", 10, inner, inputs="[[2], []]")]
    reel = torchreel.load(write_reel(tmp_path / "run.reel", Process({"main": calls})))
    assert rows(averages(reel), "name", "calls", "self_ns", "total_ns") == [
        ("aten::sum", 1, 40, 45),
        ("aten::fill_", 1, 5, 5),
    ]
    assert rows(averages(reel, by=["name", "overload"]), "overload", "calls", "total_ns") == [
        ("dim_IntList", 1, 35),
        ("", 1, 45),
        ("", 1, 5),
    ]


def test_a_range_in_itself_is_several_calls_but_not_more_time(tmp_path: Path) -> None:
    visit = call("visit", 1, call("visit", 2, call("visit", 3, kind="range"), kind="range"), kind="range")
    reel = torchreel.load(write_reel(tmp_path / "run.reel", Process({"main": [visit]})))
    assert rows(averages(reel), "name", "calls", "self_ns", "total_ns", "total_percent") == [("visit", 3, 6, 6, 100.0)]


def test_only_some_kinds(reel: torchreel.Reel) -> None:
    assert rows(averages(reel, kinds=["backward"]), "name", "self_ns", "self_percent") == [("AddmmBackward0", 6, 100.0)]
    assert averages(reel, kinds=["lite"]).num_rows == 0


def test_module_has_its_own_time_and_the_total_of_its_submodules(reel: torchreel.Reel) -> None:
    table = averages(reel, by="module")
    assert rows(table, "module", "calls", "self_ns", "total_ns", "average_ns") == [
        ("Net.fc", 1, 41 + 56, 41 + 56, 97),
        ("Net.out", 1, 51, 51, 51),
        ("(no module)", 2, 5 + 3 + 4, 113, 57),
        ("Net", 1, 9, 101 + 56, 157),
    ]
    assert sum(table["self_ns"].to_pylist()) == 169


def test_module_counts_ops_where_no_module_calls_were_recorded(tmp_path: Path) -> None:
    calls = [call("aten::a", 1, call("aten::b", 2, module="Net"), module="Net"), call("aten::c", 4, module="Net.fc")]
    reel = torchreel.load(write_reel(tmp_path / "run.reel", Process({"main": calls})))
    assert rows(averages(reel, by="module"), "module", "calls", "self_ns", "total_ns") == [
        ("Net.fc", 1, 4, 4),
        ("Net", 2, 3, 7),
    ]


def test_total_of_places_counts_nothing_twice(reel: torchreel.Reel) -> None:
    assert rows(averages(reel, by="thread"), "thread", "calls", "self_ns", "total_ns") == [
        ("MainThread (100)", 7, 113, 113),
        ("pt_autograd_0 (101)", 2, 56, 56),
    ]
    assert rows(averages(reel, by="kind"), "kind", "calls", "self_ns", "total_ns") == [
        ("op", 7, 151, 151),
        ("range", 1, 12, 113),
        ("backward", 1, 6, 56),
    ]
    assert rows(averages(reel, by="process"), "process", "total_ns", "total_percent") == [("host-1", 169, 100.0)]


def test_step_is_a_number_and_may_be_unknown(reel: torchreel.Reel) -> None:
    assert rows(averages(reel, by="step"), "step", "calls", "self_ns", "total_ns") == [
        (None, 7, 60 + 30 + 7 + 6 + 50, 97 + 56),
        (0, 1, 12, 113),
        (1, 1, 4, 4),
    ]


def test_stack_is_text_of_its_innermost_frames(reel: torchreel.Reel) -> None:
    both = "/src/model.py(5): Net.forward\n/src/train.py(10): main"
    assert rows(averages(reel, by="stack"), "stack", "calls", "self_ns", "total_ns") == [
        ("(no stack)", 6, 122, 113 + 56),
        (both, 3, 47, 47),
    ]
    assert averages(reel, by="stack", stack_frames=1)["stack"].to_pylist() == ["(no stack)", both.splitlines()[0]]
    assert (both, "aten::relu") in rows(averages(reel, by=["name", "stack"]), "stack", "name")


def test_inputs_are_grouped_by_their_text(tmp_path: Path) -> None:
    calls = [linear(dims="[[2,3],[3,4],[]]"), linear(dims="[[2, 3], [3, 4], []]"), linear(dims="[[9], []]")]
    reel = torchreel.load(write_reel(tmp_path / "run.reel", Process({"main": calls})))
    assert rows(averages(reel, by=["name", "inputs"]), "name", "inputs", "calls", "flops", "self_alloc_bytes") == [
        ("aten::addmm", "[[2, 3], [3, 4], []]", 2, 48, 16),
        ("aten::addmm", "[[9], []]", 1, 24, 8),
        ("aten::linear", "(no inputs)", 3, None, 0),
    ]


def test_processes_with_other_ids_for_the_same_thing_are_added_up(tmp_path: Path) -> None:
    def process(rank: int) -> Process:
        work = call("aten::mm", 10 + rank, inputs="[[2]]", module="Net.fc", stack=(HERE,), step=rank)
        return Process({"main": [work]}, name=f"host-{rank + 1}", pid=rank + 1, rank=rank, first_id=7 * rank)

    reel = torchreel.load(write_reel(tmp_path / "run.reel", process(0), process(1)))
    for by, text in (("inputs", "[[2]]"), ("module", "Net.fc"), ("stack", "/src/train.py(10): main")):
        table = averages(reel, by=by)
        assert rows(table, by, "calls", "self_ns")[0] == (text, 2, 21)
    assert averages(reel, by="thread")["thread"].to_pylist() == ["host-2/main (200)", "host-1/main (100)"]
    assert averages(reel, by="process")["process"].to_pylist() == ["host-2 rank 1", "host-1 rank 0"]


def test_overload(tmp_path: Path) -> None:
    calls = [call("aten::add", 2, overload="Tensor"), call("aten::add", 1, overload="out")]
    reel = torchreel.load(write_reel(tmp_path / "run.reel", Process({"main": calls})))
    assert rows(averages(reel, by=["name", "overload"]), "name", "overload", "self_ns") == [
        ("aten::add", "Tensor", 2),
        ("aten::add", "out", 1),
    ]


def test_a_call_that_ended_elsewhere_has_no_percentages(tmp_path: Path) -> None:
    calls = [call("rpc", 1000, kind="range", asynchronous=True), call("aten::add", 10)]
    reel = torchreel.load(write_reel(tmp_path / "run.reel", Process({"main": calls})))
    assert rows(averages(reel, sort="total"), "name", "self_ns", "total_ns", "self_percent", "total_percent") == [
        ("rpc", 0, 1000, 0.0, 0.0),
        ("aten::add", 10, 10, 100.0, 100.0),
    ]


@pytest.mark.parametrize(
    ("sort", "first"),
    [
        *(("self", "aten::addmm"), ("total", "step"), ("count", "aten::addmm"), ("memory", "aten::addmm")),
        *(("flops", "aten::addmm"), ("average", "step")),
    ],
)
def test_sort_and_limit(reel: torchreel.Reel, sort: str, first: str) -> None:
    table = averages(reel, sort=sort, limit=1)
    assert table["name"].to_pylist() == [first]
    assert table["self_percent"].to_pylist()[0] < 40


def test_hidden_calls_in_hidden_calls(tmp_path: Path) -> None:
    """However deep Python's calls are, their time arrives at the range around them."""
    inner = call("aten::add", 1)
    for level in range(100):
        inner = call(f"f{level}", 2, inner, kind="python")
    reel = torchreel.load(write_reel(tmp_path / "run.reel", Process({"main": [call("work", 3, inner, kind="range")]})))
    assert rows(averages(reel), "name", "self_ns") == [("work", 203), ("aten::add", 1)]
    assert rows(averages(reel, by="kind"), "kind", "total_ns") == [("range", 204), ("op", 1)]


@pytest.mark.parametrize("by", ["name", "module", "thread", "step"])
def test_sums_of_hours(tmp_path: Path, by: str) -> None:
    """Sums that 32 bits do not hold, with every kind of call in them."""
    hour = 3600 * 10**9
    inner = call("f", hour, call("aten::mm", hour, module="Net", step=0), kind="python")
    net = call("nn.Module: Net", hour, inner, kind="module", module="Net")
    process = Process({"main": [call("step", hour, net, kind="range"), call("step", hour, net, kind="range")]})
    table = averages(torchreel.load(write_reel(tmp_path / "run.reel", process)), by=by)
    assert sum(table["self_ns"].to_pylist()) == 8 * hour
    assert table["total_ns"].type == pa.int64()
    assert max(table["total_ns"].to_pylist()) == 8 * hour


def test_empty_reel(tmp_path: Path) -> None:
    reel = torchreel.load(write_reel(tmp_path / "run.reel", Process({"main": []})))
    assert averages(reel).num_rows == 0
    assert averages(reel, by="module").num_rows == 0


GROUPS = "name, overload, inputs, module, stack, line, thread, step, process, kind"
SORTS = "self, total, count, memory, flops, average, device"
KINDS = (
    "op, backward, torchscript, lite, custom, static_runtime, range, module, python, runtime, driver, overhead, other"
)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"by": ["colour"]}, f"Calls cannot be grouped by 'colour': give one or more of {GROUPS}."),
        ({"by": []}, f"Calls cannot be grouped by nothing: give one or more of {GROUPS}."),
        ({"sort": "size"}, f"Averages cannot be sorted by 'size': give one of {SORTS}."),
        ({"limit": -1}, "A limit of -1 rows makes no sense: give a number from 0, or None for all rows."),
        ({"stack_frames": 0}, "A stack of 0 frames makes no sense: give a number from 1."),
        ({"kinds": ["ops"]}, f"There is no kind of call 'ops': give one or more of {KINDS}."),
    ],
)
def test_unknown_options_name_the_allowed_ones(reel: torchreel.Reel, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(OptionError) as error:
        averages(reel, **options)
    assert str(error.value) == sentence
