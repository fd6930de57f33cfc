"""What changed between two reels, over trees of calls whose times can be added up by hand."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import torchreel
from tests.synthetic import START, Call, Process, call, write_reel
from torchreel.analyze.diff import BY, Diff, diff, parse_limits
from torchreel.errors import OptionError
from torchreel.reel.meta import write_meta
from torchreel.reel.write import write_process

HERE = (("/home/me/train.py", 10, "main"),)


def mm(ns: int, step: int | None = None, rows: int = 2) -> Call:
    return call(
        "aten::mm", ns, step=step, inputs=f"[[{rows}, 3], [3, 4]]", module="Net.fc", stack=HERE, bytes=8, flops=24
    )


def stepped(path: Path, steps: list[list[Call]], allocs: tuple[tuple[str, int], ...] = ()) -> torchreel.Reel:
    """A reel whose steps are these calls, one after the other."""
    process = Process({"MainThread": [item for step in steps for item in step]}, allocs=allocs)
    tables = process.tables()
    rows, moment = [], START
    for number, step in enumerate(steps):
        end = moment + sum(item.dur_ns for item in step)
        rows.append({"step": number, "start_ns": moment, "end_ns": end})
        moment = end
    write_process(path / process.name, {**tables, "steps": pa.Table.from_pylist(rows)})
    write_meta(path, {"root": process.name})
    return torchreel.load(path)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[torchreel.Reel, torchreel.Reel]:
    """A takes 100 and 120 ns a step in mm, B 150 twice, and aten::relu instead of aten::sin."""
    tmp_path = tmp_path_factory.mktemp("pair")
    a = stepped(
        tmp_path / "a.reel",
        [
            [mm(9_999, 0)],
            [mm(100, 1), call("aten::sin", 10, step=1)],
            [mm(120, 2), call("aten::sin", 10, step=2)],
            [mm(7_777, 3)],
        ],
        (("alloc", 100),),
    )
    b = stepped(
        tmp_path / "b.reel",
        [[], [mm(150, 1), call("aten::relu", 4, step=1)], [mm(150, 2), call("aten::relu", 4, step=2)], [mm(1, 3)]],
        (("alloc", 150),),
    )
    return a, b


@pytest.fixture(scope="module")
def changes(pair: tuple[torchreel.Reel, torchreel.Reel]) -> Diff:
    return diff(*pair)


def test_steps_are_compared_and_those_at_the_ends_left_out(changes: Diff) -> None:
    found = changes
    assert (found.per, found.a_steps, found.b_steps) == ("step", 2, 2)
    assert found.rows.to_pylist() == [
        {
            "name": "aten::mm",
            "a_calls": 1.0,
            "b_calls": 1.0,
            "a_self_ns": 110.0,
            "b_self_ns": 150.0,
            "a_alloc_bytes": 8.0,
            "b_alloc_bytes": 8.0,
            "change_ns": 40.0,
            "spread_ns": 10.0,
            "state": "both",
        },
        {
            "name": "aten::sin",
            "a_calls": 1.0,
            "b_calls": 0.0,
            "a_self_ns": 10.0,
            "b_self_ns": 0.0,
            "a_alloc_bytes": 0.0,
            "b_alloc_bytes": 0.0,
            "change_ns": -10.0,
            "spread_ns": 0.0,
            "state": "gone",
        },
        {
            "name": "aten::relu",
            "a_calls": 0.0,
            "b_calls": 1.0,
            "a_self_ns": 0.0,
            "b_self_ns": 4.0,
            "a_alloc_bytes": 0.0,
            "b_alloc_bytes": 0.0,
            "change_ns": 4.0,
            "spread_ns": 0.0,
            "state": "new",
        },
    ]
    assert (found.self_ns.a, found.self_ns.b, found.self_ns.spread) == (120.0, 154.0, 10.0)
    assert (found.wall_ns.a, found.wall_ns.b) == (120.0, 154.0)
    assert (found.ops.a, found.ops.b, found.ops.change) == (2.0, 2.0, 0.0)
    assert found.peak_bytes is not None and (found.peak_bytes.a, found.peak_bytes.b) == (100.0, 150.0)


@pytest.mark.parametrize("by", BY)
def test_the_changes_add_up(pair: tuple[torchreel.Reel, torchreel.Reel], by: str) -> None:
    found = diff(*pair, by=by)
    assert sum(found.rows["change_ns"].to_pylist()) == pytest.approx(found.self_ns.change) == 34
    back = diff(*reversed(pair), by=by)
    assert back.self_ns.change == -found.self_ns.change
    assert sorted(back.rows["state"].to_pylist()) == sorted(
        {"new": "gone", "gone": "new"}.get(state, state) for state in found.rows["state"].to_pylist()
    )


def test_a_reel_and_itself_do_not_differ(pair: tuple[torchreel.Reel, torchreel.Reel]) -> None:
    found = diff(pair[0], pair[0])
    assert set(found.rows["change_ns"].to_pylist()) == {0.0}
    assert not any(limit.is_broken(found) for limit in parse_limits("self +0%, wall +0, peak +0%, ops +0"))


def test_shapes_tell_calls_of_one_name_apart(tmp_path: Path) -> None:
    a = torchreel.load(write_reel(tmp_path / "a.reel", Process({"MainThread": [mm(5), mm(7, rows=9)]})))
    b = torchreel.load(write_reel(tmp_path / "b.reel", Process({"MainThread": [mm(5), mm(6, rows=8)]})))
    rows = diff(a, b, by="inputs").rows.select(["name", "inputs", "change_ns", "state"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        ("aten::mm", "[[9, 3], [3, 4]]", -7.0, "gone"),
        ("aten::mm", "[[8, 3], [3, 4]]", 6.0, "new"),
        ("aten::mm", "[[2, 3], [3, 4]]", 0.0, "both"),
    ]


def test_without_steps_in_one_of_them_the_whole_runs_are_compared(tmp_path: Path) -> None:
    a = stepped(tmp_path / "a.reel", [[mm(10, 0)], [mm(20, 1)], [mm(30, 2)]])
    b = torchreel.load(write_reel(tmp_path / "b.reel", Process({"MainThread": [mm(5)]})))
    found = diff(a, b)
    assert (found.per, found.a_steps, found.b_steps, found.peak_bytes) == ("run", 0, 0, None)
    assert found.rows["change_ns"].to_pylist() == [-55.0]
    assert (found.ops.a, found.ops.b) == (3.0, 1.0)


def test_an_empty_reel_has_nothing_to_compare(tmp_path: Path) -> None:
    empty = torchreel.load(write_reel(tmp_path / "empty.reel", Process({})))
    found = diff(empty, empty)
    assert found.rows.num_rows == 0 and found.self_ns.percent is None


LIMITS = {
    "self +5%": True,
    "self +29%": False,
    "self +30ns": True,
    "self +34 ns": False,
    "wall +1us": False,
    "peak +49.9%": True,
    "peak +50%": False,
    "peak +49B": True,
    "peak +1KiB": False,
    "ops +0": False,
    "self +40%, peak +2%": True,
}


@pytest.mark.parametrize(("text", "broken"), LIMITS.items())
def test_limits(changes: Diff, text: str, broken: bool) -> None:
    assert any(limit.is_broken(changes) for limit in parse_limits(text)) is broken


@pytest.mark.parametrize(
    "text", ["", "self", "self 5%", "self -5%", "time +5%", "self +5 apples", "peak +2ms", "ops +1B"]
)
def test_limits_that_cannot_be_read(text: str) -> None:
    with pytest.raises(OptionError, match="The limit '"):
        parse_limits(text)


def test_a_limit_on_memory_needs_memory(tmp_path: Path) -> None:
    reel = torchreel.load(write_reel(tmp_path / "a.reel", Process({"MainThread": [mm(5)]})))
    with pytest.raises(OptionError, match="recorded with --memory"):
        parse_limits("peak +2%")[0].is_broken(diff(reel, reel))


def test_what_cannot_be_compared_by(tmp_path: Path) -> None:
    reel = torchreel.load(write_reel(tmp_path / "a.reel", Process({})))
    with pytest.raises(OptionError, match="name, inputs, module, line"):
        diff(reel, reel, by="thread")
