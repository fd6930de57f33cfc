"""What changed, as the page asks for it: the numbers of `torchreel diff`, and the same as a tree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import torchreel
from tests.synthetic import START, Process, call
from torchreel import analyze
from torchreel.errors import OptionError
from torchreel.reel.meta import write_meta
from torchreel.reel.write import write_process
from torchreel.web.query import Query
from torchreel.web.questions.diff import diff
from torchreel.web.viewed_reel import ViewedReel


def steps(path: Path, *works: dict[tuple[str, str], int]) -> torchreel.Reel:
    """A reel with a step for each of these, the ops by module and name."""
    calls = [
        call(name, ns, module=module, step=number)
        for number, work in enumerate(works)
        for (module, name), ns in work.items()
    ]
    process = Process({"main": calls})
    tables = process.tables()
    walls = np.cumsum([0, *(sum(work.values()) for work in works)]).tolist()
    tables["steps"] = pa.Table.from_pylist(
        [
            {"step": number, "start_ns": START + walls[number], "end_ns": START + walls[number + 1]}
            for number in range(len(works))
        ]
    )
    write_process(path / process.name, tables)
    write_meta(path, {"root": process.name})
    return torchreel.load(path)


@pytest.fixture
def viewed(tmp_path: Path) -> ViewedReel:
    """Three whole steps in each, between a first and a last one that do not count."""
    odd = {("Net", "x"): 7}
    a = [{("Net.a", "mm"): ns, ("Net.a", "add"): 20, ("Net.b", "mm"): 50} for ns in (100, 110, 120)]
    b = [{("Net.a", "mm"): ns, ("Net.b", "mm"): 50, ("Net.c", "new"): 5} for ns in (200, 200, 260)]
    return ViewedReel(steps(tmp_path / "a.reel", odd, *a, odd), steps(tmp_path / "b.reel", odd, *b, odd))


@pytest.mark.parametrize("by", ["name", "inputs", "module", "line"])
def test_the_numbers_are_those_of_the_command_line(viewed: ViewedReel, by: str) -> None:
    answer = diff(viewed, Query({"by": by}))
    assert viewed.other is not None
    expected = analyze.diff(viewed.reel, viewed.other, by).as_dict()
    assert {key: answer[key] for key in expected} == expected and answer["tree"] is None


def test_steps_and_phases(viewed: ViewedReel) -> None:
    answer = diff(viewed, Query({}))
    assert (answer["steps"]["a"], answer["steps"]["b"]) == ([170, 180, 190], [255, 255, 315])
    sums = {side: sum(row[f"{side}_ns"] for row in answer["steps"]["phases"]) for side in "ab"}
    assert sums == {"a": pytest.approx(180), "b": pytest.approx(275)}


def test_the_tree_has_modules_with_all_that_is_in_them(viewed: ViewedReel) -> None:
    rows: dict[Any, Any] = {(row["module"], row["name"]): row for row in diff(viewed, Query({"tree": "1"}))["tree"]}
    assert {key: (row["a_self_ns"], row["b_self_ns"], row["state"]) for key, row in rows.items()} == {
        ("Net", ""): (180, 275, "both"),
        ("Net.a", ""): (130, 220, "both"),
        ("Net.b", ""): (50, 50, "both"),
        ("Net.c", ""): (0, 5, "new"),
        ("Net.a", "mm"): (110, 220, "both"),
        ("Net.a", "add"): (20, 0, "gone"),
        ("Net.b", "mm"): (50, 50, "both"),
        ("Net.c", "new"): (0, 5, "new"),
    }
    # The spread of a module is that of its sums, and not the sum of its spreads.
    assert rows["Net", ""]["spread_ns"] == pytest.approx(np.std([255, 255, 315]))
    assert rows["Net.b", ""]["spread_ns"] == 0


def test_one_reel_alone_is_a_sentence(viewed: ViewedReel) -> None:
    with pytest.raises(OptionError, match="There is no second reel"):
        diff(ViewedReel(viewed.reel), Query({}))
