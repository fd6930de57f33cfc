"""The flight recorder: bounded memory, and the last of it on demand."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
import torch

import torchreel
from tests.alone import run_alone, run_forked
from tests.record.rows import names, rows
from torchreel.errors import RecorderError


def spin(count: int) -> None:
    x = torch.ones(1)
    for _ in range(count):
        x.add_(1)


def test_memory_stays_at_the_rings_size_and_the_last_ops_are_dumped(tmp_path: Path) -> None:
    script = """
    import sys, torch, torchreel
    from tests.alone import resident_bytes
    from tests.record.test_ring import spin
    with torchreel.record(sys.argv[1], ring="2MB", shapes=True, memory=True, stacks=True) as recorder:
        spin(100_000)
        before = resident_bytes()
        spin(300_000)
        print(resident_bytes() - before)
        with torchreel.range("the last"):
            torch.zeros(3)
        recorder.dump()
    """
    assert int(run_alone(script, tmp_path / "a.reel")) < 4_000_000
    reel = torchreel.load(tmp_path / "a.reel")
    assert names(reel, "kind = 'range'") == ["the last"]
    assert names(reel, "depth = 1")[-1] == "aten::zeros"
    kept = reel.ops.num_rows
    assert 20_000 < kept < 400_000
    assert rows(reel, "select count(*) as n from ops where stack is null or inputs is null") == [{"n": 0}]
    assert rows(reel, "select count(*) as n from ops where parent is null and depth > 0") == [{"n": 0}]


def test_a_ring_that_is_never_dumped_leaves_nothing(tmp_path: Path) -> None:
    with torchreel.record(tmp_path / "a.reel", ring="2MB"):
        spin(10)
    assert list(tmp_path.iterdir()) == []


def test_an_exception_dumps(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), torchreel.record(tmp_path / "a.reel", ring="2MB"):
        spin(10)
        _ = 1 / 0
    assert names(torchreel.load(tmp_path / "a.reel"), "name = 'aten::add_'") == ["aten::add_"] * 10


def test_a_signal_dumps_and_the_program_goes_on(tmp_path: Path) -> None:
    with torchreel.record(tmp_path / "a.reel", ring="2MB"):
        spin(10)
        os.kill(os.getpid(), signal.SIGUSR2)
        spin(5)
        os.kill(os.getpid(), signal.SIGUSR2)
        spin(1)
    assert len(names(torchreel.load(tmp_path / "a.reel"), "name = 'aten::add_'")) == 10
    assert len(names(torchreel.load(tmp_path / "a-2.reel"), "name = 'aten::add_'")) == 15
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL


def test_an_uncaught_exception_dumps_at_the_programs_end(tmp_path: Path) -> None:
    script = """
    import sys, torch, torchreel
    torchreel.record(sys.argv[1], ring="2MB").start()
    torch.ones(1)
    raise ValueError("the program's own")
    """
    result = run_forked(script, tmp_path / "a.reel")
    assert result.returncode == 1
    assert "the program's own" in result.stderr
    assert "dumped to" in result.stderr
    assert names(torchreel.load(tmp_path / "a.reel"), "depth = 0") == ["aten::ones"]


def test_many_short_threads_share_one_ring(tmp_path: Path) -> None:
    script = """
    import sys, threading, torchreel
    from tests.alone import resident_bytes
    from tests.record.test_ring import spin
    with torchreel.record(sys.argv[1], ring="2MB") as recorder:
        for i in range(300):
            thread = threading.Thread(target=spin, args=(20,))
            thread.start()
            thread.join()
            if i == 100:
                before = resident_bytes()
        print(resident_bytes() - before)
        recorder.dump()
    """
    assert int(run_alone(script, tmp_path / "a.reel")) < 8_000_000
    assert len(names(torchreel.load(tmp_path / "a.reel"), "name = 'aten::add_'")) >= 20 * 20


def test_dump_needs_a_ring_and_peek_needs_none(tmp_path: Path) -> None:
    with torchreel.record(tmp_path / "a.reel") as recorder, pytest.raises(RecorderError, match="flight recorder"):
        recorder.dump()
    with torchreel.record(tmp_path / "b.reel", ring="2MB") as recorder, pytest.raises(RecorderError, match="dump"):
        recorder.peek()


def test_the_users_own_handlers_come_back(tmp_path: Path) -> None:
    hook, handler = sys.excepthook, signal.getsignal(signal.SIGUSR2)
    with torchreel.record(tmp_path / "a.reel", ring="2MB"):
        assert sys.excepthook is not hook
    assert sys.excepthook is hook
    assert signal.getsignal(signal.SIGUSR2) is handler
