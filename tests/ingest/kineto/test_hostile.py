"""Files that are cut off, damaged, or made to do harm: what can be read is read, what is lost is said."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.alone import run_python
from tests.gpu_traces import trace
from tests.ingest.kineto.small import instant, kernel, launch, op, read_text, rows
from torchreel.errors import CorruptTraceError, NotATraceError
from torchreel.ingest import import_traces
from torchreel.ingest.kineto import pieces as pieces_of
from torchreel.ingest.kineto.trace import read_trace
from torchreel.reel import load

GOOD = [op("a", 1, 2), op("b", 5, 2), launch(5, 1, 3), kernel("k", 8, 1, 3)]


def text_of(*events: Any) -> str:
    """Events, as objects or as they are to stand in the file."""
    return ",\n".join(event if type(event) is str else json.dumps(event) for event in events)


def write(path: Path, *events: Any, head: str = '"schemaVersion": 1') -> Path:
    path.write_bytes(f'{{{head}, "traceEvents": [{text_of(*events)}]}}'.encode("utf-8", "surrogateescape"))
    return path


def damaged(name: str = '"x"', **fields: str) -> str:
    """An event whose values stand in the file as they are given."""
    given = {"ph": '"X"', "cat": '"cpu_op"', "name": name, "pid": "500", "tid": "500", "ts": "3", "dur": "1", **fields}
    return "{" + ", ".join(f'"{key}": {value}' for key, value in given.items()) + "}"


@pytest.mark.parametrize(
    ("event", "name"),
    [
        (damaged('"void f<"quoted">(int)"'), 'void f<"quoted">(int)'),
        (damaged('"say "hi", twice"'), 'say "hi", twice'),
        (damaged('"C:\\path\\new"'), "C:\\path\new"),
        (damaged('"a\nb\tc\x01"'), "a\nb\tc\x01"),
        (damaged('"\udcff"'), "\\xff"),
        (damaged('"half \\ud83d of one"'), "half � of one"),
        (damaged('"x\\u0000y"'), "x\\x00y"),
        (damaged(args='{"a": NaN, "b": -Infinity}'), "x"),
        (damaged(dur="0.-05"), "x"),
        (damaged(args="[1, 2]"), "x"),
        (damaged(args='"text"'), "x"),
        (damaged(args="null"), "x"),
        (damaged(pid="1.5", tid="[]"), "x"),
        (damaged(cat="7"), "x"),
        (damaged("12"), "12"),
        (damaged(args='{"External id": 99999999999999999999999, "Sequence number": "x", "Call stack": 5}'), "x"),
        (damaged(args='{"Input Dims": {"a": 1}, "Input type": 3}'), "x"),
    ],
)
def test_an_event_is_mended(tmp_path: Path, event: str, name: str) -> None:
    reel, said = read_text(write(tmp_path / "t.json", *GOOD[:2], event, *GOOD[2:]))
    assert rows(reel, "select name from ops where name not in ('a', 'b', 'cudaLaunchKernel')") == [(name,)]
    assert rows(reel, "select count(*) from ops") == [(4,)]
    assert rows(reel, "select count(*) from kernels") == [(1,)]
    assert said.losses.events == 0 and rows(reel, "select complete from processes") == [(True,)]


@pytest.mark.parametrize(
    "event",
    ['{"ph": "X", "name" "no colon"}', '{"ph": 5}', '{"ph": "X", "args": ' + "[" * 5000 + "]" * 5000 + "}"],
)
def test_an_event_is_lost_and_counted(tmp_path: Path, event: str) -> None:
    reel, said = read_text(write(tmp_path / "t.json", *GOOD[:2], event, *GOOD[2:]))
    assert said.losses.events == 1 and said.losses.bytes == len(event)
    assert rows(reel, "select complete, lost_events from processes") == [(False, 1)]
    assert rows(reel, "select count(*) from ops") == [(3,)]
    assert said.warnings() == [f"1 event of {tmp_path / 't.json'} is damaged and left out ({len(event):,} bytes)."]


@pytest.mark.parametrize("wrong", ["1e999", '"soon"', "[]", "99999999999999999999999", "null"])
def test_an_event_without_a_time(tmp_path: Path, wrong: str) -> None:
    reel, said = read_text(write(tmp_path / "t.json", *GOOD, damaged(ts=wrong)))
    assert said.left_out == {"without a time": 1}
    assert rows(reel, "select count(*) from ops") == [(3,)]


@pytest.mark.parametrize("packed", [False, True])
def test_half_a_file_is_half_a_reel(tmp_path: Path, packed: bool) -> None:
    whole = gzip.decompress(trace("h100_bert_small.json.gz").read_bytes())
    begin = whole.index(b"[", whole.index(b'"traceEvents"'))
    kept = whole[: begin + (len(whole) - begin) // 2]
    path = tmp_path / "t.json"
    path.write_bytes(gzip.compress(kept)[:-9] if packed else kept)
    read = read_trace(path)
    assert not read.row["complete"]
    first = json.loads(whole)["traceEvents"][: read.events]
    assert read.tables["ops"].num_rows == sum(
        event["ph"] == "X"
        and event["cat"] in ("cpu_op", "user_annotation", "python_function", "cuda_runtime", "cuda_driver")
        for event in first
    )
    after = kept.rfind(b"\n  {\n")
    (warning,) = read.warnings()
    assert f"{path} is not whole: " in warning
    if not packed:
        assert 0 < read.lost_bytes <= len(kept) - after
        assert f" {read.lost_bytes:,} bytes after the last whole event are lost." in warning


def test_a_file_that_ends_after_an_event(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": [' + text_of(*GOOD))
    reel, said = read_text(path)
    assert rows(reel, "select count(*) from ops") == [(3,)]
    assert said.warnings() == [f"{path} is not whole: it ends early. 0 bytes after the last whole event are lost."]


def test_a_damaged_head_or_tail_costs_no_event(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", *GOOD, head='"a": NaN, "b": "x"y", "c": 3')
    reel, _ = read_text(path)
    assert rows(reel, "select count(*) from ops") == [(3,)]
    assert reel.meta["source"]["c"] == 3
    path = write(tmp_path / "t.json", *GOOD, head='"a": {]')
    reel, said = read_text(path)
    assert rows(reel, "select count(*) from ops") == [(3,)]
    assert said.losses.reasons == {"before the list": 1}


@pytest.mark.parametrize("content", ["", "{}", "[]]", "null", '{"traceEvents": {}}', '{"a": [1]}', "hello", "\x1f\x8b"])
def test_what_is_no_trace(tmp_path: Path, content: str) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(NotATraceError):
        read_trace(path) if content != "[]]" else import_traces([path], tmp_path / "x.reel")
    assert not (tmp_path / "x.reel").exists()


def test_nothing_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": [{"ph": "X", "na')
    with pytest.raises(CorruptTraceError, match=r"No event of .* can be read"):
        read_trace(path)


def test_events_are_found_whatever_the_blocks_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects in lists, brackets and quotes in texts, and blocks that end anywhere."""
    from torchreel.ingest.kineto import unpacking

    tricky = [
        op("},{", 1, 1, text='"}],[{"', rows=[{"ph": "X"}, {"name": 1}, {"ts": [{}]}]),
        op('\\"traceEvents\\": [', 2, 1, text="\\"),
        op("]}", 3, 1, deep=[[{"a": [{"ph": "}, {"}]}]]),
    ] * 5
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": tricky, "after": [{"a": 1}, {"b": [{}]}], "z": "]}"}, indent=1))
    for size in (50, 333):
        monkeypatch.setattr(unpacking, "BLOCK", size)
        read = read_trace(path)
        assert read.tables["ops"].num_rows == 15, size
        assert read.losses.events == 0 and read.problem is None
        assert read.source["after"] == [{"a": 1}, {"b": [{}]}] and read.source["z"] == "]}"


def test_a_name_of_ten_megabytes(tmp_path: Path) -> None:
    name = "long" * 2_500_000
    reel, _ = read_text(write(tmp_path / "t.json", op(name, 1, 2), op("b", 5, 1)))
    assert rows(reel, "select length(name) from ops order by id") == [(10_000_000,), (1,)]


def test_an_event_without_an_end_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces_of, "_MOST", 1 << 20)
    path = tmp_path / "t.json"
    path.write_text(f'{{"traceEvents": [{text_of(*GOOD)}, {{"ph": "X", "name": "{"x" * (12 << 20)}')
    read = read_trace(path)
    assert read.tables["ops"].num_rows == 3
    assert not read.row["complete"] and read.lost_bytes > 12 << 20


BOMB = """
import resource, sys, zlib
from pathlib import Path
from torchreel.errors import TorchreelError
from torchreel.ingest.kineto.trace import read_trace
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    print(read_trace(sys.argv[1]).problem)
except TorchreelError as error:
    print(error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def test_a_bomb_takes_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "t.json.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(f'{{"traceEvents": [{text_of(*GOOD)}, {{"ph": "X", "name": "'.encode())
        for _ in range(300):
            file.write(b"x" * (1 << 20))
    outcome = run_python("-c", BOMB, path)
    said, memory = outcome.stdout.splitlines()
    assert said == "it unpacks to more than 200 times its size", outcome
    assert int(memory) < 400


def test_a_file_of_many_threads_is_no_quadratic_work(tmp_path: Path) -> None:
    """Calls that all overlap without nesting, each on one thread."""
    events = [op(f"n{index % 3}", index, 50) for index in range(20_000)]
    reel, _ = read_text(write(tmp_path / "t.json", *events))
    assert rows(reel, "select max(depth), sum(self_ns) // 1000 from ops") == [(49, 20_049)]


def test_the_file_is_left_as_it_was(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", *GOOD)
    before = path.read_bytes()
    import_traces([path], tmp_path / "x.reel")
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []
    assert load(tmp_path / "x.reel").meta["state"] == "closed"


def test_durations_that_cannot_be_meant_are_said(tmp_path: Path) -> None:
    endless = kernel("endless", 10, 1, 3) | {"dur": 2**63}
    timeless = {key: value for key, value in kernel("timeless", 20, 1, 3).items() if key != "dur"}
    backwards = kernel("backwards", 30, -5, 3)
    reel, said = read_text(write(tmp_path / "t.json", *GOOD, endless, timeless, backwards))
    found = rows(reel, "select name, dur_ns from kernels where name != 'k' order by start_ns")
    assert found == [("endless", 0), ("timeless", 0), ("backwards", -5000)]
    assert said.warnings() == [
        f"1 event of {said.path} with an end before its beginning.",
        f"2 events of {said.path} without a duration that can be read, taken as 0 ns.",
    ]


def test_a_second_list_of_events_is_said(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(f'{{"traceEvents": [{text_of(*GOOD)}], "a": 1, "traceEvents": [{text_of(*GOOD)}]}}')
    reel, said = read_text(path)
    assert rows(reel, "select count(*) from ops") == [(3,)]
    assert said.warnings() == [f"{path} has a second list of events, which is not read."]
    assert reel.process_rows()[0]["complete"] is False and reel.meta["source"]["a"] == 1


def test_memory_events_of_unknown_size_are_left_out(tmp_path: Path) -> None:
    sizes = [64, 2**70, "many", None, -64]
    events = [instant("[memory]", 3 + place, Bytes=size, Addr=16) for place, size in enumerate(sizes)]
    reel, said = read_text(write(tmp_path / "t.json", *GOOD, *events))
    assert rows(reel, "select action, size from allocs order by id") == [("alloc", 64), ("free", 64)]
    assert said.left_out["memory events without a number of bytes"] == 3
