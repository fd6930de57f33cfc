"""The run of the tests itself: whatever a test does, the run ends, is red, and names the test."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import subprocess
import sys
import termios
import textwrap
import time
from pathlib import Path
from typing import IO

import pytest

from tests import limits, seeds, skipped
from tests.in_child import in_child
from tests.limits import OVER
from tests.seeds import VARIABLE

ROOT = Path(__file__).parents[1]
BEFORE_AND_AFTER = """
import pytest

@pytest.mark.parametrize("number", range({first}, {last}))
def test_{name}(number):
    pass
"""


def workers() -> list[str]:
    """How `make test` shares the tests out."""
    [words] = re.findall(r"^WORKERS := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return words.split()


ALL = "from tests.conftest import *\n"
"""With seeds, for which every process imports torch: only where they count."""
LIMITS = """
from tests import limits, skipped
def pytest_configure(config):
    for plugin in (limits, skipped): config.pluginmanager.register(plugin)
"""


def test_the_tests_themselves_have_all_of_it(request: pytest.FixtureRequest) -> None:
    assert all(request.config.pluginmanager.is_registered(plugin) for plugin in (limits, seeds, skipped))


def suite(directory: Path, conftest: str = LIMITS, **tests: str) -> Path:
    """A file for each test, with others before and after it, and three files without."""
    (directory / "conftest.py").write_text(conftest)
    for name, body in tests.items():
        text = BEFORE_AND_AFTER.format(name="before", first=0, last=5)
        text += f"\ndef test_{name}():\n{textwrap.indent(textwrap.dedent(body), '    ')}\n"
        text += BEFORE_AND_AFTER.format(name="after", first=5, last=10)
        (directory / f"test_{name}.py").write_text(text)
    for number in range(3):
        (directory / f"test_other_{number}.py").write_text(
            BEFORE_AND_AFTER.format(name=f"other_{number}", first=0, last=10)
        )
    return directory


def start(directory: Path, *options: str, **environment: str) -> subprocess.Popen[str]:
    """The little suite, with the settings of this one, as a group of processes."""
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(directory)]
        + ["-p", "no:cacheprovider", "-p", "xdist", "-p", "timeout", *options, str(directory)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environment},  # others take as long to import as a run does
        start_new_session=True,
    )


def run(directory: Path, *options: str, **environment: str) -> tuple[int, str]:
    running = start(directory, *options, **environment)
    try:
        said, _ = running.communicate()
    finally:
        kill(running)
    return running.returncode, said


def kill(running: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)


def test_a_crash_ends_in_a_finished_run_that_names_the_test(tmp_path: Path) -> None:
    suite(tmp_path, crash="import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)")
    code, said = run(tmp_path, *workers())
    assert code == pytest.ExitCode.TESTS_FAILED, said
    assert re.search(r"worker '\w+' crashed while running '.*test_crash\.py::test_crash'", said), said
    assert "1 failed, 40 passed" in said


@pytest.mark.long
def test_many_crashes_end_as_well(tmp_path: Path) -> None:
    crash = "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)"
    suite(tmp_path, **{f"crash_{number}": crash for number in range(4)})
    code, said = run(tmp_path, *workers())
    assert code == pytest.ExitCode.TESTS_FAILED, said
    assert "4 failed, 70 passed" in said


def test_a_test_that_hangs_fails_and_the_others_go_on(tmp_path: Path) -> None:
    suite(tmp_path, hang="import threading\nthreading.Event().wait()")
    code, said = run(tmp_path, *workers(), "-o", "timeout=10")
    assert code == pytest.ExitCode.TESTS_FAILED, said
    assert "1 failed, 40 passed" in said
    assert re.search(r"FAILED .*test_hang\.py::test_hang", said) and "Failed: Timeout" in said, said
    assert "threading.Event().wait()" in said  # the line at which it stood


@pytest.mark.long
def test_a_test_that_no_signal_reaches_is_ended_with_the_stacks_of_all_threads(tmp_path: Path) -> None:
    """Native code that never gives the interpreter back, as one that waits for a lock of its own."""
    body = """
        import ctypes, threading
        def waiting_elsewhere(): threading.Event().wait()
        threading.Thread(target=waiting_elsewhere, daemon=True).start()
        ctypes.PyDLL(None).pause()
    """
    suite(tmp_path, stuck=body)
    code, said = run(tmp_path, *workers(), "-o", "timeout=0", "-o", "faulthandler_timeout=10")
    assert code == pytest.ExitCode.TESTS_FAILED, said
    assert re.search(r"crashed while running '.*test_stuck\.py::test_stuck'", said), said
    assert re.search(r"Timeout \(0:00:10\)!", said) and "in waiting_elsewhere" in said and "in test_stuck" in said
    assert "1 failed, 40 passed" in said


@pytest.mark.parametrize("how", ["alone", "shared out"])
def test_a_run_whose_time_is_over_says_where_it_stands(tmp_path: Path, how: str) -> None:
    begun = tmp_path / "begun"
    body = f"import pathlib, threading\ndef standing_here():\n    pathlib.Path({str(begun)!r}).touch()\n"
    suite(tmp_path, hang=body + "    threading.Event().wait()\nstanding_here()")
    running = start(tmp_path, "-v", *(workers() if how == "shared out" else []))
    assert running.stdout is not None
    said = ""
    try:
        while "::test_hang" not in said and running.poll() is None:
            said += running.stdout.read(1)
        while not begun.exists() and running.poll() is None:
            time.sleep(0.05)
        os.killpg(running.pid, OVER)  # as `timeout` does it
        said += running.communicate()[0]
    finally:
        kill(running)
    assert running.returncode == pytest.ExitCode.INTERRUPTED, said
    assert "test_hang.py::test_hang" in under_way(said), said
    assert "in standing_here" in said


def under_way(said: str) -> list[str]:
    """Another worker may have begun a test before the one that hangs, and not be done with it."""
    found = re.search(r"These tests were under way:\n((?:  .*\n)+)", said)
    assert found is not None, said[-1000:]
    return found[1].split()


def test_a_run_whose_time_is_over_while_it_prints_says_where_it_stands(tmp_path: Path) -> None:
    """The signal comes while standard output is being flushed, because nobody reads what the test prints."""
    suite(tmp_path, hang="import sys\nsys.stdout.write('x' * 10**6)\nsys.stdout.flush()")
    running = start(tmp_path, "-s", "-k", "test_hang", PYTHONUNBUFFERED="")
    assert running.stdout is not None
    try:
        while waiting_bytes(running.stdout) < PIPE // 2 and running.poll() is None:
            time.sleep(0.05)
        os.killpg(running.pid, OVER)
        said = running.communicate()[0]
    finally:
        kill(running)
    assert running.returncode == pytest.ExitCode.INTERRUPTED, said[-1000:]
    assert under_way(said) == ["test_hang.py::test_hang"]
    assert "in test_hang" in said


PIPE = 65536
"""What a pipe holds before its writer waits."""


def waiting_bytes(pipe: IO[str]) -> int:
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def test_the_run_of_make_has_these_limits() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert f"LIMIT := PYTHONHASHSEED=0 timeout --signal={signal.Signals(OVER).name[3:]} --kill-after=60\n" in makefile
    for line in re.findall(r"^\t.*-m pytest.*$", makefile, re.MULTILINE):
        assert re.match(r"\t\$\(LIMIT\) \d+ ", line), line


def test_a_run_ends_with_what_was_skipped_and_why(tmp_path: Path) -> None:
    skips = "import pytest\npytest.skip('there is no {}')"
    suite(tmp_path, one=skips.format("moon"), two=skips.format("moon"), three=skips.format("sun"))
    (tmp_path / "test_file.py").write_text(
        "import pytest\npytest.importorskip('nonesuch', reason='no nonesuch here')\n"
    )
    for options in ([], workers()):
        code, said = run(tmp_path, *options)
        assert code == pytest.ExitCode.OK, said
        end = re.search(r"=+ Skipped, and why: =+\n+((?: +\d+  .*\n)+)=+ 60 passed, 4 skipped", said)
        assert end is not None, said
        assert end[1] == "    2  there is no moon\n    1  no nonesuch here\n    1  there is no sun\n"


DRAWS = """
import random, numpy, torch
print("drawn", random.random(), numpy.random.rand(), torch.rand(1).item(), torch.nn.Linear(1, 1).weight.item())
assert False
"""


def drawn(said: str) -> list[str]:
    return re.findall(r"^drawn .*$", said, re.MULTILINE)


@pytest.mark.long
def test_each_test_draws_the_same_numbers_each_time_and_a_failure_says_the_seed(tmp_path: Path) -> None:
    suite(tmp_path, ALL, one=DRAWS, two=DRAWS)
    _, first = run(tmp_path)
    _, again = run(tmp_path, *workers(), "-k", "test_two or test_one or other")
    assert len(set(drawn(first))) == 2
    assert set(drawn(first)) == set(drawn(again))
    seeds = re.findall(rf"-+ seed -+\n{VARIABLE}=(\d+)", first)
    assert len(set(seeds)) == 2, first
    _, given = run(tmp_path, "-k", "test_two", **{VARIABLE: seeds[0]})
    assert drawn(given) == drawn(first)[:1]


SHARED = """
import pytest, torch

DRAWN = torch.rand(1).item()

@pytest.fixture(scope="module")
def shared():
    return torch.rand(1).item()

@pytest.mark.parametrize("number", range(3))
def test_shared(shared, number):
    print("drawn", DRAWN, shared)
    assert number < 0
"""


@pytest.mark.long
def test_what_several_tests_share_does_not_depend_on_which_comes_first(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(ALL)
    (tmp_path / "test_shared.py").write_text(SHARED)
    _, all_of_them = run(tmp_path)
    _, last = run(tmp_path, *(f"--deselect=test_shared.py::test_shared[{number}]" for number in range(2)))
    assert len(drawn(all_of_them)) == 3 and len(drawn(last)) == 1
    assert set(drawn(all_of_them)) == set(drawn(last))


def crash() -> None:
    print("seed 7", flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)


def test_what_dies_in_a_child_fails_its_test_alone() -> None:
    with pytest.raises(AssertionError, match=r"crash died of SIGSEGV:\nseed 7\n(.|\n)*in crash"):
        in_child(crash)
    with pytest.raises(AssertionError, match="ended with exit code 1"):
        in_child(suite)
    assert in_child(workers) == workers()
