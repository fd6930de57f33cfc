"""The ops of tapes, each with its call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import torchreel
from tests.synthetic import Process, call, write_reel
from torchreel.errors import OptionError
from torchreel.reel.meta import write_meta
from torchreel.reel.write import write_process
from torchreel.web.query import Query
from torchreel.web.questions.tape import tape
from torchreel.web.viewed_reel import ViewedReel


def taped(path: Path) -> ViewedReel:
    """Two tapes of one process; the first op of the second has no call."""
    process = Process({"main": [call(f"op {n}", 10 + n, flops=n, bytes=n) for n in range(4)]})
    places: list[dict[str, Any]] = [
        {"tape": "step-1.tape", "index": 0, "name": "op 0", "op": 0, "backward": False},
        {"tape": "step-1.tape", "index": 1, "name": "op 1", "op": 1, "backward": True, "forward": 0},
        {"tape": "step-2.tape", "index": 0, "name": "made", "op": None, "backward": False, "inserted": True},
        {"tape": "step-2.tape", "index": 1, "name": "op 3", "op": 3, "backward": False},
    ]
    write_process(path / process.name, {**process.tables(), "tape_ops": pa.Table.from_pylist(places)})
    write_meta(path, {"root": process.name})
    return ViewedReel(torchreel.load(path))


def told(answer: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [
        (row["index"], row["name"], row["op"], row["dur_ns"], row["alloc_bytes"], row["flops"])
        for row in answer["rows"]
    ]


def test_each_op_has_what_its_call_took(tmp_path: Path) -> None:
    viewed = taped(tmp_path / "run.reel")
    first = tape(viewed, Query({}))
    assert first["tapes"] == [
        {"process": 0, "tape": "step-1.tape", "ops": 2, "backward": 1},
        {"process": 0, "tape": "step-2.tape", "ops": 2, "backward": 0},
    ]
    assert told(first) == [(0, "op 0", 0, 10, 0, 0), (1, "op 1", 1, 11, 1, 1)]
    assert told(tape(viewed, Query({"tape": "1"}))) == [(0, "made", None, None, None, None), (1, "op 3", 3, 13, 3, 3)]
    assert told(tape(viewed, Query({"limit": "1"}))) == [(0, "op 0", 0, 10, 0, 0)]


def test_a_call_leads_to_its_tape(tmp_path: Path) -> None:
    viewed = taped(tmp_path / "run.reel")
    assert tape(viewed, Query({"process": "0", "op": "3"}))["chosen"] == 1
    assert tape(viewed, Query({"process": "0", "op": "2"}))["chosen"] == 0  # on no tape
    assert tape(viewed, Query({"process": "7", "op": "3", "tape": "1"}))["chosen"] == 1


def test_no_tape_and_one_that_is_not_there(tmp_path: Path) -> None:
    plain = write_reel(tmp_path / "plain.reel", Process({"main": [call("a", 1)]}))
    assert tape(ViewedReel(torchreel.load(plain)), Query({})) == {"tapes": [], "chosen": None, "rows": []}
    with pytest.raises(OptionError, match="tape=2 is not a whole number from 0 to 1"):
        tape(taped(tmp_path / "run.reel"), Query({"tape": "2"}))
