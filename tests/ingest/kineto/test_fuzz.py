"""Traces with bytes and values changed at random: a reel comes out, or a sentence; never anything else."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.gpu_traces import DIRECTORY, TRACES
from torchreel.errors import ProfilerTraceError, SnapshotError
from torchreel.ingest import import_traces
from torchreel.reel import load

SMALL = ("a100_triton.json.gz", "a100_event_sync.json.gz", "compare_base.json.gz", "mi250_rocm62_toy.json.gz")
FIELDS = ("ph", "cat", "name", "pid", "tid", "ts", "dur", "args", "id")
TOP = ("traceEvents", "distributedInfo", "deviceProperties", "baseTimeNanoseconds", "host_name")
VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 2**70, -(2**63), 1.5, 10**400, "", "x", "12", "stream 3", "a\0b", "\ud800"),
    *([], {}, [[]], [{"ph": "X"}], {"a": [{"ph": "X", "name": "},{"}]}),
)
TEXTS = (b'"', b"{", b"}", b"[", b"]", b",", b"\\", b"NaN", b"0.-05", b"\xff", b"\0", b"1e999", b'{"ph":"X"', b"}],")


def with_other_values(text: bytes, chance: random.Random) -> bytes:
    document = json.loads(text)
    events = document["traceEvents"]
    for _ in range(chance.randint(1, 12)):
        event, kind = chance.choice(events), chance.random()
        if kind < 0.4:
            event[chance.choice(FIELDS)] = chance.choice(VALUES)
        elif kind < 0.8 and type(event.get("args")) is dict and event["args"]:
            event["args"][chance.choice(list(event["args"]))] = chance.choice(VALUES)
        elif kind < 0.95:
            document[chance.choice(TOP[1:])] = chance.choice(VALUES)
    if chance.random() < 0.3:
        events.insert(chance.randrange(len(events)), chance.choice(VALUES))
    return json.dumps(document).encode()


def with_other_bytes(text: bytes, chance: random.Random) -> bytes:
    changed = bytearray(text)
    for _ in range(chance.randint(1, 20)):
        at, kind = chance.randrange(len(changed)), chance.random()
        if kind < 0.3:
            changed[at] = chance.randrange(256)
        elif kind < 0.5:
            del changed[at : at + chance.randint(1, 200)]
        elif kind < 0.7:
            changed[at:at] = chance.choice(TEXTS)
        elif kind < 0.9:
            other = chance.randrange(len(changed))
            changed[at:at] = changed[other : other + chance.randint(1, 500)]
        elif kind < 0.93:
            del changed[at:]
        changed = changed or bytearray(b"{}")
    return bytes(changed)


def hold(directory: Path, number: int) -> str:
    """Import one changed trace, and read what came out."""
    chance = random.Random(number)
    text = gzip.decompress((DIRECTORY / chance.choice(SMALL)).read_bytes())
    data = chance.choice((with_other_values, with_other_bytes))(text, chance)
    if chance.random() < 0.2:
        data = gzip.compress(data)[: chance.randrange(20, 60_000)]
    path, output = directory / "t.json", directory / "x.reel"
    path.write_bytes(data)
    try:
        (trace,) = import_traces([path], output, replace=True)
    except (ProfilerTraceError, SnapshotError) as error:
        assert str(error).endswith(".")
        return "refused"
    reel = load(output)
    for name in ("ops", "kernels", "allocs", "collectives", "processes"):
        assert reel.table(name).num_rows == trace.tables[name].num_rows
    assert trace.row["complete"] == (trace.problem is None and not trace.losses.events)
    return "whole" if trace.row["complete"] else "damaged"


@pytest.mark.skipif(not TRACES, reason="there are no real traces: name their directory in TORCHREEL_TRACES")
@pytest.mark.parametrize("first", [0, pytest.param(1000, marks=pytest.mark.long)])
def test_changed_traces(tmp_path: Path, first: int) -> None:
    outcomes = set()
    for number in range(first, first + (60 if not first else 5000)):
        print("trace number", number)
        outcomes.add(hold(tmp_path, number))
    assert outcomes == {"whole", "damaged", "refused"}
