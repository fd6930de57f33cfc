"""Fresh interpreters for what must not share a process, and what they took by the system's own account."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Usage:
    wall_s: float
    cpu_s: float
    peak_bytes: int


def call(module: str, *arguments: str) -> Any:
    """Run `python -m module arguments` and give what it printed last, which is JSON."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def usage_of(command: Sequence[str]) -> Usage:
    """Run a command, its output thrown away, from a process that is small.

    The system counts to a child's peak what its parent held when it began.
    """
    return Usage(**call("benchmarks.child", *command))


def peak_bytes() -> int:
    """The most memory that this process has held since forget_peak(), or since it began."""
    return _status_bytes("VmHWM")


def resident_bytes() -> int:
    return _status_bytes("VmRSS")


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _status_bytes(field: str) -> int:
    found = re.search(rf"^{field}:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    if found is None:
        raise RuntimeError(f"The system does not say {field}: this benchmark needs Linux.")
    return int(found[1]) * 1024


def _main() -> None:
    start = time.perf_counter()
    process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    if os.waitstatus_to_exitcode(status) != 0:
        raise SystemExit(f"{sys.argv[1:]} failed.")
    usage = {"wall_s": wall, "cpu_s": used.ru_utime + used.ru_stime, "peak_bytes": used.ru_maxrss * 1024}
    print(json.dumps(usage))


if __name__ == "__main__":
    _main()
