"""Peaks, and what is known of their moments."""

from __future__ import annotations

from pathlib import Path

from tests.analyze.memory.conftest import Programs
from tests.analyze.memory.traces import EPOCH, Trace, user
from torchreel.analyze.memory.peak import Moment, peaks

ADAM = "Optimizer.step#Adam.step"


def test_the_moment_of_each_peak(tmp_path: Path) -> None:
    # GIVEN a peak of allocated memory within an annotation, and one of active memory after it
    trace = Trace()
    trace.event("segment_alloc", 0, 1 << 21)
    trace.annotate("epoch", "START")
    trace.annotate(ADAM, "START")
    trace.alloc(0, 500, user(3, "f"))
    trace.event("free_requested", 0, 500)
    trace.annotate(ADAM, "END")
    trace.alloc(4096, 400, user(4, "g"))
    trace.event("free_completed", 0, 500)
    trace.event("segment_free", 0, 1 << 21)
    found = peaks(trace.memory(tmp_path))
    nothing = {"step": None, "phase": None, "op": None}
    assert found.allocated.bytes == 500
    assert found.allocated.moment == Moment(
        event=1, time_ns=EPOCH + 1000, since_start_ns=1000, range=ADAM, line="user/train.py:3 f", **nothing
    )
    assert found.active.bytes == 900
    assert found.active.moment == Moment(
        event=3, time_ns=EPOCH + 3000, since_start_ns=3000, range="epoch", line="user/train.py:4 g", **nothing
    )
    assert found.reserved is not None
    assert (found.reserved.bytes, found.reserved.moment.event) == (1 << 21, 0)
    assert found.allocated_at_peak_reserved == 500


def test_a_history_that_only_frees_peaked_at_its_beginning(tmp_path: Path) -> None:
    trace = Trace()
    trace.free(0, 500)
    moment = peaks(trace.memory(tmp_path)).allocated.moment
    assert (moment.event, moment.since_start_ns, moment.line) == (-1, 0, None)


def test_without_times_events_tell_the_moment(tmp_path: Path) -> None:
    trace = Trace(times=False)
    trace.alloc(0, 5)
    moment = peaks(trace.memory(tmp_path)).allocated.moment
    assert (moment.event, moment.time_ns, moment.since_start_ns) == (0, None, None)


def test_a_training_peaks_in_a_step_of_it(programs: Programs) -> None:
    found = peaks(programs.memory("adam-without-foreach-inside"))
    assert found.reserved is None
    assert found.allocated == found.active
    moment = found.allocated.moment
    assert (moment.range, moment.phase) == (ADAM, "optimizer")
    assert moment.step in range(4)
    assert moment.line is not None and moment.line.startswith("memory/programs.py:")
