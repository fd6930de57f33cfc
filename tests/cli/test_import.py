"""`torchreel import`: what it says of a file, and where the reel goes."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Outcome
from tests.ingest.kineto.small import instant, kernel, launch, op, slice_of
from torchreel._units import bytes_text
from torchreel.reel import load

Torchreel = Callable[..., Outcome]

BLOCK = {"address": 4096, "size": 512, "requested_size": 500, "state": "active_allocated", "frames": []}
SEGMENT = {"device": 0, "address": 4096, "total_size": 512, "stream": 0, "segment_type": "small", "blocks": [BLOCK]}
EVENT = {"action": "alloc", "addr": 4096, "size": 500, "stream": 0, "time_us": 1}
RANGE = {"name": "step", "stage": "START", "device": 0, "time_us": 1}


def write(path: Path, **content: Any) -> Path:
    content = {"segments": [SEGMENT], "device_traces": [[EVENT]], **content}
    path.write_bytes(json.dumps(content).encode() if path.suffix == ".json" else pickle.dumps(content))
    return path


def size_of(reel: str) -> str:
    return bytes_text(sum(path.stat().st_size for path in Path(reel).rglob("*") if path.is_file()))


@pytest.mark.parametrize("name", ["snap.pickle", "snap.json"])
def test_what_is_said_of_a_snapshot(torchreel: Torchreel, directory: Path, name: str) -> None:
    write(Path(name), torch_version="2.13.0", external_annotations=[RANGE])
    outcome = torchreel("import", name)
    assert outcome == Outcome(
        0,
        f"Read {name}: 1 event, 1 segment, 1 block, 1 annotation of cuda:0, by torch 2.13.0.\n"
        f"Wrote snap.reel ({size_of('snap.reel')}).\n\n"
        "Next: torchreel memory snap.reel      what holds the memory\n"
        "      torchreel simulate snap.reel    what other allocator settings would do\n",
        "",
    )
    assert load("snap.reel").meta["source"] == {"file": name, "kind": "memory snapshot"}
    assert [path.name for path in directory.iterdir() if path.name.startswith(".")] == []


def test_a_snapshot_without_a_history(torchreel: Torchreel, directory: Path) -> None:
    write(Path("snap.pickle"), device_traces=[[], []])
    outcome = torchreel("import", "snap.pickle", "-o", "run.reel")
    assert outcome == Outcome(
        0,
        "Read snap.pickle: 0 events, 1 segment, 1 block of cuda:0, cuda:1, by a torch that it does not name.\n"
        "It has no usable history, only the state at its end: for one, call "
        "torch.cuda.memory._record_memory_history() before the code of interest, and dump after it.\n"
        f"Wrote run.reel ({size_of('run.reel')}).\n\n"
        "Next: torchreel memory run.reel      what holds the memory\n",
        "",
    )


def test_a_reel_is_replaced_only_with_force(torchreel: Torchreel, directory: Path) -> None:
    write(Path("snap.pickle"))
    assert torchreel("import", "snap.pickle").code == 0
    write(Path("snap.pickle"), device_traces=[[EVENT, EVENT]])
    sentence = "snap.reel exists: name another reel with -o, or give --force to replace it."
    assert torchreel("import", "snap.pickle") == Outcome(1, "", f"Error: {sentence}\n")
    assert load("snap.reel").allocs.num_rows == 1
    assert torchreel("import", "snap.pickle", "--force").code == 0
    assert load("snap.reel").allocs.num_rows == 2


def test_a_bad_file_leaves_everything_as_it_was(torchreel: Torchreel, directory: Path) -> None:
    write(Path("snap.pickle"))
    assert torchreel("import", "snap.pickle").code == 0
    write(Path("snap.pickle"), segments=[{**SEGMENT, "blocks": [{**BLOCK, "size": "x"}]}])
    sentence = "segments[0].blocks[0].size is 'x', not a number of bytes"
    expected = f"Error: snap.pickle cannot be used: {sentence}. Dump the snapshot again.\n"
    assert torchreel("import", "snap.pickle", "--force") == Outcome(1, "", expected)
    assert load("snap.reel").allocs.num_rows == 1
    Path("mine").mkdir()
    outcome = torchreel("import", "snap.pickle", "-o", "mine", "--force")
    assert outcome.err == "Error: mine is not a reel, so --force does not remove it: name another with -o.\n"
    assert sorted(path.name for path in directory.iterdir()) == ["mine", "snap.pickle", "snap.reel"]


def test_what_is_no_file(torchreel: Torchreel, reel: Path) -> None:
    sentence = "run.reel is a directory, not a trace or a memory snapshot: name the file."
    assert torchreel("import", "run.reel") == Outcome(1, "", f"Error: {sentence}\n")
    sentence = "There is no file at none.pickle: check the path."
    assert torchreel("import", "none.pickle") == Outcome(1, "", f"Error: {sentence}\n")
    write(Path("snap.pickle"))
    outcome = torchreel("import", "snap.pickle", "-o", "snap.pickle/run.reel")
    assert outcome.code == 1
    assert outcome.err.startswith("Error: snap.pickle/run.reel could not be written (Not a directory)")


def write_trace(path: Path, *events: dict[str, Any], **top: Any) -> Path:
    path.write_text(json.dumps({**top, "traceEvents": [op("aten::mm", 0, 9), launch(1, 1, 5), *events]}))
    return path


NEXT = """
Next: torchreel gpu    x.reel    what the devices did
      torchreel report x.reel    where the time went
      torchreel view   x.reel    the same as a timeline
"""


def test_what_is_said_of_a_trace(torchreel: Torchreel, directory: Path) -> None:
    span = slice_of("Trace", "PyTorch Profiler (0)", 0, 9, pid="Spans")
    rank = {"rank": 3, "world_size": 8}
    write_trace(Path("a.json"), kernel("k", 3, 1, 5), kernel("k", 5, 1, 5), span, span, distributedInfo=rank)
    write_trace(Path("b.json"), kernel("k", 3, 1, 5), instant("mine", 4), {"ph": "B", "ts": 1})
    assert torchreel("import", "a.json", "b.json", "-o", "x.reel") == Outcome(
        0,
        "Read a.json: 6 events, of rank 3 of 8: 2 calls, 2 device activities.\n"
        "Not in the reel: 2 spans of the profiler itself.\n"
        "Read b.json: 5 events: 2 calls, 1 device activity, 1 mark.\n"
        "Not in the reel: 1 of the phase 'B'.\n"
        f"Wrote x.reel ({size_of('x.reel')}).\n{NEXT}",
        "",
    )
    reel = load("x.reel")
    assert [source["file"] for source in reel.meta["source"]] == ["a.json", "b.json"]
    assert [row["name"] for row in reel.process_rows()] == ["b-500", "rank00003-a-500"]
    assert [path.name for path in directory.iterdir() if path.name.startswith(".")] == []


def test_what_is_lost_is_a_warning(torchreel: Torchreel, directory: Path) -> None:
    path = write_trace(Path("a.json"), kernel("k", 3, 1, 5), op("last", 20, 1))
    path.write_text(path.read_text()[:-30])
    outcome = torchreel("import", "a.json", "-o", "x.reel")
    assert (outcome.code, outcome.out.splitlines()[0]) == (0, "Read a.json: 3 events: 2 calls, 1 device activity.")
    lost = (
        len('{"ph": "X", "cat": "cpu_op", "name": "last", "pid": 500, "tid": 500, "ts": 20, "dur": 1, "args": {}}]}')
        - 30
    )
    assert (
        outcome.err
        == f"Warning: a.json is not whole: it ends early. {lost} bytes after the last whole event are lost.\n"
    )
    assert load("x.reel").process_rows()[0]["complete"] is False


def test_traces_that_cannot_be_used_leave_everything_as_it_was(torchreel: Torchreel, directory: Path) -> None:
    write_trace(Path("a.json"))
    assert torchreel("import", "a.json").code == 0
    Path("b.json").write_text('{"traceEvents": [{"ph"')
    sentence = "No event of b.json can be read: copy it again from where it was made."
    assert torchreel("import", "a.json", "b.json", "-o", "a.reel", "--force") == Outcome(1, "", f"Error: {sentence}\n")
    assert load("a.reel").ops.num_rows == 2
    write(Path("snap.json"))
    sentence = "snap.json is a memory snapshot, which becomes a reel of its own: import it alone."
    assert torchreel("import", "a.json", "snap.json", "-o", "x.reel") == Outcome(1, "", f"Error: {sentence}\n")
    Path("c.json").write_text('{"some": "thing"}')
    sentence = "c.json is JSON, but neither a trace of torch.profiler nor a memory snapshot: name another file."
    assert torchreel("import", "c.json") == Outcome(1, "", f"Error: {sentence}\n")
    assert sorted(path.name for path in directory.iterdir()) == ["a.json", "a.reel", "b.json", "c.json", "snap.json"]


def test_a_file_that_is_named_twice_is_refused(torchreel: Torchreel, directory: Path) -> None:
    write_trace(Path("a.json"))
    Path("link.json").symlink_to("a.json")
    for again in ("a.json", "./a.json", "link.json"):
        outcome = torchreel("import", "a.json", again, "-o", "x.reel")
        assert (outcome.code, outcome.out) == (1, "")
        assert outcome.err == f"Error: {Path(again)} is named twice: name each file once.\n"


def test_two_files_of_one_rank_are_a_warning(torchreel: Torchreel, directory: Path) -> None:
    for name in ("rank3_a.json", "rank3_b.json", "rank4.json"):
        write_trace(Path(name))
    outcome = torchreel("import", "rank3_a.json", "rank3_b.json", "rank4.json", "-o", "x.reel")
    assert outcome.code == 0
    assert outcome.err == "Warning: 2 files are of rank 3: answers about ranks take each as a rank.\n"
