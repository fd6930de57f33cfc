"""Ready-made events of others in a recording: shown as ranges by everything that reads a reel."""

from __future__ import annotations

import io
import json
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch

import torchreel
from tests.export_formats import WRITABLE
from torchreel.errors import OptionError, RecorderError
from torchreel.export import export
from torchreel.record.recorder import Recorder
from torchreel.reel import Reel


def event(name: str, start: int, end: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "start_ns": BASE + start, "end_ns": BASE + end, **more}


BASE = time.time_ns()
TREE = [
    event("late", 500, 600, thread="worker"),
    event("outer", 0, 400, thread="worker", category="tokenizer"),
    event("inner", 100, 200, thread="worker"),
    event("innermost", 100, 150, thread="worker"),
    event("second", 200, 300, thread="worker"),
    event("elsewhere", 50, 450, thread=17),
]


def recorded(path: Path, events: Any, **more: Any) -> Reel:
    with torchreel.record(path) as recorder:
        torch.ones(2).add(1)
        recorder.add_events(events, **more)
    return torchreel.load(path)


def foreign(reel: Reel) -> dict[str, dict[str, Any]]:
    rows = reel.sql(
        "select o.*, t.name as on_thread from ops o join threads t on t.process = o.process and t.id = o.thread "
        "join processes p on p.process = o.process where p.name like '%-events-%'"
    ).to_pylist()
    return {row["name"]: row for row in rows}


def test_events_are_ranges_of_a_process_of_their_own(tmp_path: Path) -> None:
    reel = recorded(tmp_path / "x.reel", TREE, process="tokenizer", pid=4242)
    rows = foreign(reel)
    assert set(rows) == {row["name"] for row in TREE}
    assert {row["kind"] for row in rows.values()} == {"range"}
    names = {row["id"]: name for name, row in rows.items()}
    parents = {name: names.get(row["parent"]) for name, row in rows.items()}
    assert parents == {
        "outer": None,
        "inner": "outer",
        "innermost": "inner",
        "second": "outer",
        "late": None,
        "elsewhere": None,
    }
    assert {name: row["self_ns"] for name, row in rows.items()} == {
        "outer": 200,
        "inner": 50,
        "innermost": 50,
        "second": 100,
        "late": 100,
        "elsewhere": 400,
    }
    assert [rows[name]["depth"] for name in ("outer", "inner", "innermost", "second", "late")] == [0, 1, 2, 1, 0]
    assert rows["outer"]["start_ns"] == BASE and rows["outer"]["backend"] == "tokenizer"
    assert (rows["outer"]["on_thread"], rows["elsewhere"]["on_thread"]) == ("worker", "17")
    (process,) = [row for row in reel.process_rows() if row["pid"] == 4242]
    assert (process["command"], process["complete"], process["start_ns"]) == ("tokenizer", True, BASE)
    own = reel.sql("select count(*) n from ops where name = 'aten::add'")["n"].to_pylist()
    assert own == [1]


def test_they_are_in_reports_and_in_every_export(tmp_path: Path) -> None:
    reel = recorded(tmp_path / "x.reel", TREE)
    totals = {row["name"]: row["total_ns"] for row in torchreel.averages(reel).to_pylist()}
    assert totals["outer"] == 400 and totals["innermost"] == 50
    for to in WRITABLE:
        stream = io.BytesIO()
        export(reel, stream, to)
        assert to in ("snapshot", "stacks", "html") or b"innermost" in stream.getvalue()
        if to == "chrome":
            events = {e["name"]: e for e in json.loads(stream.getvalue())["traceEvents"]}
            assert events["outer"]["cat"] == "user_annotation" and events["outer"]["args"]["Backend"] == "tokenizer"


def test_they_are_there_at_once_and_may_come_several_times(tmp_path: Path) -> None:
    with torchreel.record(tmp_path / "x.reel") as recorder:
        assert recorder.add_events([event("a", 0, 10)]) == 1
        first = recorder.peek()
        assert recorder.add_events(pa.Table.from_pylist([event("b", 0, 10), event("c", 0, 10)])) == 2
        assert recorder.add_events([]) == 0
        second = recorder.peek()
    assert (set(foreign(first)), set(foreign(second))) == ({"a"}, {"a", "b", "c"})
    assert set(foreign(torchreel.load(tmp_path / "x.reel"))) == {"a", "b", "c"}


def test_from_many_threads(tmp_path: Path) -> None:
    with torchreel.record(tmp_path / "x.reel") as recorder:
        threads = [threading.Thread(target=recorder.add_events, args=([event(f"e{n}", 0, 10)],)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert set(foreign(torchreel.load(tmp_path / "x.reel"))) == {f"e{n}" for n in range(8)}


def test_events_that_cross(tmp_path: Path) -> None:
    rows = foreign(
        recorded(
            tmp_path / "x.reel", [event("a", 0, 100), event("b", 50, 150), event("c", 60, 70), event("d", 100, 100)]
        )
    )
    assert {name: row["async"] for name, row in rows.items()} == {"a": False, "b": True, "c": False, "d": False}
    assert rows["b"]["self_ns"] == 0 and rows["a"]["self_ns"] == 90 and rows["d"]["dur_ns"] == 0


def test_names_of_any_kind(tmp_path: Path) -> None:
    names = ["\0", 'say "hi"', "a\nb", "\ud800", "", "π"]
    rows = foreign(recorded(tmp_path / "x.reel", [event(name, n, n) for n, name in enumerate(names)]))
    assert set(rows) == {"\0", 'say "hi"', "a\nb", "\\ud800", "", "π"}


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([{"name": "a", "start_ns": BASE}], "Event 0 has no end_ns"),
        ([event("a", 0, 1), event("b", 5, 4)], "Event 1 ends at .* before it begins"),
        ([event("a", 0, 1, colour="red")], "Event 0 has 'colour', which is not kept"),
        ([{"name": "a", "start_ns": 12, "end_ns": 13}], "12 for start_ns, which is no time of our days"),
        ([{"name": "a", "start_ns": 1.7e9, "end_ns": BASE}], "for start_ns: give nanoseconds"),
        ([{"name": "a", "start_ns": True, "end_ns": BASE}], "True for start_ns"),
        ([{"name": "a", "start_ns": BASE, "end_ns": 1 << 80}], "no time of our days"),
        (["a"], "Event 0 is str"),
        ("abc", "Events are a table or a list of rows"),
        ({"name": "a"}, "Events are a table or a list of rows"),
        (5, "and not int"),
    ],
)
def test_what_is_no_event(tmp_path: Path, events: Any, words: str) -> None:
    with torchreel.record(tmp_path / "x.reel") as recorder, pytest.raises(OptionError, match=words):
        recorder.add_events(events)
    assert [part.name for part in torchreel.load(tmp_path / "x.reel").parts if "events" in part.name] == []
    assert not [entry for entry in (tmp_path / "x.reel").iterdir() if entry.name.startswith(".")]


def test_only_while_a_reel_is_recorded(tmp_path: Path) -> None:
    with (
        torchreel.record(tmp_path / "ring.reel", ring="4MiB") as recorder,
        pytest.raises(RecorderError, match="flight recorder"),
    ):
        recorder.add_events([event("a", 0, 1)])
    with pytest.raises(RecorderError, match="add_events"):
        recorder.add_events([event("a", 0, 1)])


def test_peek_of_a_joined_recorder_has_them(tmp_path: Path) -> None:
    outer = Recorder(tmp_path / "outer.reel", from_outside=True).start()
    with torchreel.record(tmp_path / "inner.reel") as recorder:
        torch.ones(1)
        recorder.add_events([event("early", 0, 1)], process="tokenizer")
        peeked = recorder.peek()
        recorder.add_events([event("late", 2, 3)])
    outer.stop()
    assert set(foreign(peeked)) == {"early"}
    assert set(foreign(torchreel.load(tmp_path / "inner.reel"))) == {"early", "late"}
    assert [row["command"] for row in peeked.process_rows()][1:] == ["tokenizer"]
