"""Single calls: everything that is told of one, against the rows of the reel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import torchreel
from torchreel.errors import OptionError
from torchreel.web.questions.calls import call, like
from torchreel.web.viewed_reel import ViewedReel


@pytest.fixture(scope="module")
def viewed(trained: Path) -> ViewedReel:
    return ViewedReel(torchreel.load(trained))


def kin(ops: list[dict[str, Any]], link: str, number: int, columns: tuple[str, ...]) -> list[dict[str, Any]]:
    found = [row for row in ops if row["process"] == 0 and row[link] == number]
    found.sort(key=lambda row: (-row["dur_ns"] if link == "parent" else row["id"], row["id"]))
    return [{name: row[name] for name in columns} for row in found[:20]]


def test_a_call_has_its_row_its_children_and_its_backward(viewed: ViewedReel) -> None:
    ops = viewed.reel.table("ops").to_pylist()
    names = {(row["process"], row["id"]): row["name"] for row in ops}
    modules = {row["id"]: row for row in viewed.reel.table("modules").to_pylist()}
    inputs = {row["id"]: row for row in viewed.reel.table("inputs").to_pylist()}
    for row in ops[:: max(1, len(ops) // 60)]:
        found = call(viewed, row["process"], row["id"])
        assert {name: found[name] for name in row} == row
        assert found["begin"] == row["start_ns"] - viewed.origin
        assert found["children"] == kin(ops, "parent", row["id"], ("id", "name", "kind", "dur_ns", "self_ns"))
        assert found["backward"] == kin(ops, "fwd", row["id"], ("id", "name", "dur_ns", "thread"))
        assert found["parent_name"] == names.get((row["process"], row["parent"]))
        assert found["fwd_name"] == names.get((row["process"], row["fwd"]))
        assert found["module_path"] == (modules[row["module"]]["path"] if row["module"] in modules else None)
        assert found["dims"] == (inputs[row["inputs"]]["dims"] if row["inputs"] in inputs else None)


def test_calls_like_it_have_its_name_and_inputs(viewed: ViewedReel) -> None:
    ops = viewed.reel.table("ops").to_pylist()
    row = next(row for row in ops if row["name"] == "aten::addmm")
    alike = sorted(each["dur_ns"] for each in ops if (each["name"], each["inputs"]) == (row["name"], row["inputs"]))
    found = like(viewed, row["process"], row["id"])
    assert found["calls"] == len(alike)
    assert alike[(len(alike) - 1) // 2] <= found["median_ns"] <= alike[len(alike) // 2]


def test_a_call_that_is_not_there_is_a_sentence(viewed: ViewedReel) -> None:
    with pytest.raises(OptionError, match="There is no call 99999999 in process 0"):
        call(viewed, 0, 99_999_999)
    with pytest.raises(OptionError, match=f"There is no call {1 << 40} in process 0"):
        call(viewed, 0, 1 << 40)
