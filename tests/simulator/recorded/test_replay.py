"""Request traces of recorded histories."""

from __future__ import annotations

from pathlib import Path

from tests.analyze.memory.traces import Trace
from torchreel.reel import load
from torchreel.reel.allocator_history.actions import ALLOC, FREE
from torchreel.simulator.source import request_traces


def test_a_block_older_than_the_recording_is_allocated_once(tmp_path: Path) -> None:
    # GIVEN a recording that names a block that lived before it, and frees it
    trace = Trace("cpu")
    trace.event("preexisting", 4096, 1000)
    trace.alloc(8192, 500)
    trace.event("free", 4096, 1000, alloc=0)
    trace.event("free", 8192, 500, alloc=1)
    requests = request_traces(load(trace.write(tmp_path / "trace.reel"))).devices["cpu"]
    # THEN the simulator is asked for it once, and gets it back
    assert requests.actions.tolist() == [ALLOC, ALLOC, FREE, FREE]
    assert requests.handles.tolist() == [0, 1, 0, 1]
    assert requests.sizes.tolist() == [1000, 500, 1000, 500]
    assert requests.notes == ()
