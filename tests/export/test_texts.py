from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa

from torchreel.export.texts import Details, TextColumn, quoted, whole

from .reels import ProcessBuilder, build


def test_half_a_surrogate_pair_is_replaced_and_a_whole_one_kept() -> None:
    assert whole("a\ud800b") == "a\ufffdb"
    assert whole("\ud83d\ude00") == "\U0001f600"
    assert whole("plain") == "plain"


def test_quoted_text_reads_back() -> None:
    text = 'say "hi" \\ \n \t \x00 \x1f \x7f \u2028 é \U0001f600'
    assert json.loads(quoted(text)) == text
    assert "é" in quoted(text)


def test_each_distinct_key_is_worked_out_once() -> None:
    asked = []

    def text(key: int) -> str:
        asked.append(key)
        return f"<{key}>"

    column = TextColumn(text)
    assert column(pa.array([3, None, 3, 4])).to_pylist() == ["<3>", None, "<3>", "<4>"]
    assert column(pa.array([4, 3])).to_pylist() == ["<4>", "<3>"]
    assert asked == [3, 4]


def test_details_of_one_process(tmp_path: Path) -> None:
    process = ProcessBuilder("a-1", 1)
    process.add("frames", id=5, file="a.py", line=2, function="f")
    process.add("frames", id=9, file="b.py", line=3, function="g")
    process.add("stacks", id=1, frames=[9, 5])
    process.add("modules", id=0, path="Net.fc", **{"class": "Linear"})
    process.add("inputs", id=4, dims="[[1]]", scalars='["\\ud800"]', dtypes="[broken", strides="[NaN]")
    details = Details(build(tmp_path / "r.reel", process, ProcessBuilder("b-2", 2)), 0)
    assert details.frames(1) == ["b.py(3): g", "a.py(2): f"]
    assert details.module(0) == "Net.fc"
    assert details.inputs(4) == {
        "Concrete Inputs": '["\ufffd"]',
        "Input type": '"[broken"',
        "Input Strides": '"[NaN]"',
        "Input Dims": "[[1]]",
    }
    assert (details.frames(77), details.module(77), details.inputs(77)) == ([], None, {})
