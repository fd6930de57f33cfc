"""`torchreel import`: what it says of a file, and where the reel goes."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Outcome
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
    sentence = "run.reel is a directory, not a memory snapshot: name the file."
    assert torchreel("import", "run.reel") == Outcome(1, "", f"Error: {sentence}\n")
    sentence = "There is no memory snapshot at none.pickle: check the path."
    assert torchreel("import", "none.pickle") == Outcome(1, "", f"Error: {sentence}\n")
    write(Path("snap.pickle"))
    outcome = torchreel("import", "snap.pickle", "-o", "snap.pickle/run.reel")
    assert outcome.code == 1
    assert outcome.err.startswith("Error: snap.pickle/run.reel could not be written (Not a directory)")
