"""`torchreel report` on ten million ops: the whole command, from its start to its last line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.analyze.time.large import write_large_reel

OPS = 10_000_000
BYTES = 2 << 30


@pytest.mark.long
def test_pain_1_a_report_of_ten_million_ops_takes_little_memory(tmp_path: Path) -> None:
    """kineto#126, pytorch#68809: minutes and gigabytes after the run; torch.profiler needs 64 us per event."""
    reel = write_large_reel(tmp_path / "run.reel", OPS)
    assert _report(reel) < BYTES


def _report(reel: Path) -> int:
    """Peak memory in bytes of the whole process."""
    process = subprocess.Popen([sys.executable, "-m", "torchreel", "report", str(reel)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout:
        text = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert (process.returncode, b"aten::addmm" in text) == (0, True)
    return usage.ru_maxrss * 1024
