"""No test takes the run down, or holds it up for ever: where a run stands is shown before it is ended.

- A test that takes too long fails, and the run goes on (pytest-timeout, by a signal).
- One that a signal does not reach, because native code holds the interpreter, ends its process with the stacks of all
  threads (faulthandler); the run goes on in a new process, if there are several.
- A test that crashes its process is named, and the others go on: see `--dist` in the Makefile.
- The run as a whole: `make test` sends SIGXCPU when its time is over. Every process shows its stacks; the one in charge
  names the tests that were under way.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType

import pytest

OVER = signal.SIGXCPU

_FOLDER = "TORCHREEL_TEST_STACKS"
_under_way: dict[str, None] = {}
_messages = 2
"""Where to write: standard error, which a test's capture does not have."""


def pytest_configure(config: pytest.Config) -> None:
    global _messages
    _messages = os.dup(2)
    if hasattr(config, "workerinput"):
        # A file each: what several processes write to one place at once, nobody can read.
        stacks = os.open(Path(os.environ[_FOLDER], str(os.getpid())), os.O_WRONLY | os.O_CREAT)
        faulthandler.register(OVER, file=stacks, all_threads=True, chain=True)
    else:
        os.environ[_FOLDER] = tempfile.mkdtemp(prefix="stacks-of-tests-")
        signal.signal(OVER, _say_and_end)


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ.pop(_FOLDER, ""), ignore_errors=True)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logstart(nodeid: str) -> None:
    _under_way[nodeid] = None


def pytest_runtest_logfinish(nodeid: str) -> None:
    _under_way.pop(nodeid, None)


def _say_and_end(number: int, frame: FrameType | None) -> None:
    names = "".join(f"  {name}\n" for name in _under_way) or "  none\n"
    os.write(_messages, f"\nThe run took longer than it may. These tests were under way:\n{names}".encode())
    faulthandler.dump_traceback(_messages, all_threads=True)
    _wait_for_workers()
    for stacks in sorted(Path(os.environ[_FOLDER]).iterdir()):
        os.write(_messages, f"\nProcess {stacks.name}:\n".encode() + stacks.read_bytes())
    # The signal may have come in the middle of a flush, which cannot be entered twice.
    with contextlib.suppress(RuntimeError):
        sys.stdout.flush()
    os._exit(pytest.ExitCode.INTERRUPTED)


def _wait_for_workers() -> None:
    """They end when this process does: until then they show their stacks, unless they cannot."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            ended, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if ended == 0:
            time.sleep(0.05)
