"""Who holds the peak: by line, module, op and category."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.analyze.memory.conftest import Programs
from tests.analyze.memory.traces import Trace, user
from torchreel.analyze.memory.holders import holders
from torchreel.analyze.memory.model.device import OLDER
from torchreel.errors import OptionError


def row(name: str, size: int, percent: float, blocks: int, largest: int, categories: str) -> dict[str, object]:
    return {
        "name": name,
        "bytes": size,
        "percent": percent,
        "blocks": blocks,
        "largest": largest,
        "categories": categories,
    }


def test_by_line_with_one_row_for_what_is_older(tmp_path: Path) -> None:
    trace = Trace()
    trace.alloc(0, 300, user(1))
    trace.alloc(4096, 100, user(1))
    trace.event("alloc", 8192, 150, ())  # a thread that has no Python
    trace.alloc(12288, 50)
    trace.free(1 << 20, 150)
    trace.free(2 << 20, 250)
    assert holders(trace.memory(tmp_path)).to_pylist() == [
        row(OLDER, 400, 40.0, 2, 250, "unknown"),
        row("user/train.py:1 main", 400, 40.0, 2, 300, "unknown"),
        row("(backward, no Python frames)", 150, 15.0, 1, 150, "gradient"),
        row("(no stack)", 50, 5.0, 1, 50, "unknown"),
    ]


def test_at_another_moment(tmp_path: Path) -> None:
    trace = Trace()
    trace.alloc(0, 300, user(1))
    trace.free(0, 300)
    trace.alloc(0, 7, user(2))
    memory = trace.memory(tmp_path)
    assert holders(memory, "stack", 10_000)["name"].to_pylist() == ["user/train.py:2 main"]
    assert holders(memory, "stack", 1).num_rows == 0


def test_by_module_and_op(programs: Programs) -> None:
    memory = programs.memory("adam-inside")
    by_module = {r["name"]: r["bytes"] for r in holders(memory, "module", memory.history.events).to_pylist()}
    # the gradients of a layer are of the layer: weight and bias
    assert by_module["Net.body.0"] == 4 * (64 * 128 + 128)
    assert by_module["Net.head"] == 4 * (64 * 10 + 10)
    by_op = {r["name"]: r for r in holders(memory, "op", memory.history.events).to_pylist()}
    assert by_op["aten::zeros_like"]["categories"] == "optimizer_state"
    assert by_op["aten::randn"]["bytes"] == 4 * 32 * 64  # aten::empty, which it calls, gives way to it


def test_the_gradient_of_a_line_is_said_to_be_its_backward(programs: Programs) -> None:
    memory = programs.memory("adam-inside")
    rows = holders(memory, "stack", memory.history.events).to_pylist()
    gradients = [r["name"] for r in rows if r["categories"] == "gradient"]
    assert gradients and all(name.startswith("backward of ") for name in gradients)


def test_every_grouping_adds_up_to_the_peak(programs: Programs) -> None:
    memory = programs.memory("adam-inside")
    for by in ("stack", "module", "op", "category"):
        table = holders(memory, by)
        assert sum(table["bytes"].to_pylist()) == int(memory.history.allocated.max())
        assert sum(table["percent"].to_pylist()) == pytest.approx(100)


def test_another_grouping_is_refused_in_a_sentence(programs: Programs) -> None:
    with pytest.raises(OptionError, match=r"cannot be grouped by 'colour': by stack, module, op, category"):
        holders(programs.memory("adam-inside"), "colour")
