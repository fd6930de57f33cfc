"""`torchreel report` on ten million ops: the whole command, from its start to its last line."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.analyze.large import write_large_reel

OPS = 10_000_000
SECONDS = 5.0
BYTES = 2 << 30


@pytest.mark.long
def test_pain_of_slow_post_processing(tmp_path: Path) -> None:
    """kineto#126, pytorch#68809: minutes and gigabytes after the run; torch.profiler needs 64 us per event."""
    reel = write_large_reel(tmp_path / "run.reel", OPS)
    command = [sys.executable, "-m", "torchreel.cli", "report", str(reel)]
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - began
    assert process.stdout is not None
    assert os.waitstatus_to_exitcode(status) == 0
    assert "aten::addmm" in process.stdout.read()
    assert seconds < SECONDS
    assert usage.ru_maxrss * 1024 < BYTES
