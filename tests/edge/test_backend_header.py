"""A backend in C or C++ that reports by torchreel/edge.h: without Python, from any thread, with a profiler or not."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import torchreel.edge
from tests.edge.nets import Calling, Net, batch
from tests.record.rows import rows
from torchreel import EdgeProfiler

TAKEN, NO_PROFILER, WHICH_PROFILER = 0, 1, 2

SOURCE = r"""
#include <torchreel/edge.h>
#include <pthread.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

static int64_t now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void pause_us(long count) {
  struct timespec span;
  span.tv_sec = 0;
  span.tv_nsec = count * 1000;
  nanosleep(&span, 0);
}

int work(int64_t handle, int64_t shift_us) {
  int64_t start;
  pause_us(2000);
  start = now_us();
  pause_us(2000);
  return torchreel_report_event(start + shift_us, now_us() + shift_us, handle, "conv", "npu");
}

void by_macros(void) {
  int64_t start = now_us();
  RECORD_BACKEND_EVENT_TO_EDGE_PROFILER(start, now_us(), -1, "by macro", "npu");
  RECORD_BACKEND_MEMORY_EVENT_TO_EDGE_PROFILER((void*)4096, 64, 64, 128, "cpu");
}

int wrong(void) { return torchreel_report_event(now_us(), now_us() - 1000, 1, "wrong", "npu"); }
int nameless(void) { return torchreel_report_event(now_us(), now_us(), 1, 0, "\xff"); }

struct thread_work { int64_t handle; int result; };

static void* run(void* given) {
  struct thread_work* wanted = (struct thread_work*)given;
  wanted->result = work(wanted->handle, 0);
  return 0;
}

int work_on_a_thread(int64_t handle) {
  struct thread_work wanted;
  pthread_t thread;
  wanted.handle = handle;
  wanted.result = -1;
  if (pthread_create(&thread, 0, run, &wanted) != 0) return -1;
  pthread_join(thread, 0);
  return wanted.result;
}

#ifdef __cplusplus
}
#endif
"""

LANGUAGES = {"C": ("cc", ["-std=c99", "-D_POSIX_C_SOURCE=199309L"], ".c"), "C++": ("c++", ["-std=c++17"], ".cpp")}


def build(language: str, directory: Path) -> Path:
    compiler, flags, suffix = LANGUAGES[language]
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler}")
    source, library = directory / f"backend{suffix}", directory / "backend.so"
    source.write_text(SOURCE)
    strict = ["-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread"]
    include = torchreel.edge.include_path()
    subprocess.run([compiler, *flags, *strict, f"-I{include}", str(source), "-o", str(library)], check=True)
    return library


@pytest.fixture(scope="module", params=LANGUAGES)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(request.param, tmp_path_factory.mktemp("backend"))


@pytest.fixture
def backend(path: Path) -> ctypes.CDLL:
    """ctypes gives Python's lock back for as long as a function of a CDLL runs."""
    library = ctypes.CDLL(str(path))
    library.work.argtypes = (ctypes.c_int64, ctypes.c_int64)
    library.work_on_a_thread.argtypes = (ctypes.c_int64,)
    return library


EVENTS = """select o.name, o.backend, o.debug_handle, p.name as parent, o.dur_ns, t.name as thread
            from ops o left join ops p on o.parent = p.id left join threads t on o.thread = t.id
            where o.kind = 'backend' order by o.start_ns, o.id"""


def calling(function: Callable[[], int], results: list[int]) -> Calling:
    def forward(x: torch.Tensor) -> torch.Tensor:
        results.append(function())
        return x.exp()

    return Calling(forward)


def test_events_lie_in_the_call_that_they_were_reported_from(backend: ctypes.CDLL) -> None:
    results: list[int] = []
    model = calling(lambda: backend.work(7, 0), results)
    with EdgeProfiler(model) as profiler:
        model(batch())
        model(batch())
    assert results == [TAKEN, TAKEN]
    found = rows(profiler.result(), EVENTS)
    assert [(row["name"], row["backend"], row["debug_handle"], row["parent"]) for row in found] == 2 * [
        ("conv", "npu", 7, "nn.Module: Calling")
    ]
    assert all(row["dur_ns"] >= 1_000_000 for row in found)


def test_from_a_thread_that_python_does_not_know(backend: ctypes.CDLL) -> None:
    results: list[int] = []
    model = calling(lambda: backend.work_on_a_thread(8), results)
    with EdgeProfiler(model) as profiler:
        model(batch())
    assert results == [TAKEN]
    [event] = rows(profiler.result(), EVENTS)
    assert (event["name"], event["debug_handle"], event["parent"]) == ("conv", 8, "nn.Module: Calling")


def test_without_a_profiler_nothing_happens(backend: ctypes.CDLL) -> None:
    assert backend.work(1, 0) == NO_PROFILER
    net = Net()
    with EdgeProfiler(net) as profiler:
        net(batch())
        profiler.disable()
        assert backend.work(1, 0) == NO_PROFILER
    assert backend.work_on_a_thread(1) == NO_PROFILER
    backend.by_macros()
    assert rows(profiler.result(), EVENTS) == []


def test_the_macros(backend: ctypes.CDLL) -> None:
    net = Net()
    with EdgeProfiler(net) as profiler:
        net(batch())
        backend.by_macros()
    reel = profiler.result()
    assert [row["name"] for row in rows(reel, EVENTS)] == ["by macro"]
    memory = rows(reel, "select action, addr, size, total, reserved, device from allocs")
    assert memory == [{"action": "alloc", "addr": 4096, "size": 64, "total": 64, "reserved": 128, "device": "cpu"}]


def test_another_clock_is_aligned(backend: ctypes.CDLL) -> None:
    results: list[int] = []
    model = calling(lambda: backend.work(1, -(10**12)), results)
    with EdgeProfiler(model, adjust_timestamps=True) as profiler:
        model(batch())
    assert [row["parent"] for row in rows(profiler.result(), EVENTS)] == ["nn.Module: Calling"]


def test_what_cannot_be_right_is_left_out_and_told(backend: ctypes.CDLL) -> None:
    net = Net()
    with EdgeProfiler(net) as profiler:
        net(batch())
        assert backend.wrong() == TAKEN
        assert backend.nameless() == TAKEN
        with pytest.warns(UserWarning, match=r"1 reports of backends were left out\. The first: The event 'wrong' of"):
            profiler.disable()
    [event] = rows(profiler.result(), EVENTS)
    assert (event["name"], event["backend"]) == ("", "\N{REPLACEMENT CHARACTER}")


def test_each_thread_reports_to_its_own_profiler(backend: ctypes.CDLL) -> None:
    """A thread that has to do with none of several is told so."""
    meeting = threading.Barrier(3)
    found: dict[int, list[int]] = {}

    def profile(number: int) -> None:
        net = Net()
        with EdgeProfiler(net) as profiler:
            net(batch())
            meeting.wait()
            assert backend.work(number, 0) == TAKEN
            meeting.wait()
        found[number] = [row["debug_handle"] for row in rows(profiler.result(), EVENTS)]

    threads = [threading.Thread(target=profile, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    meeting.wait()
    assert backend.work(9, 0) == WHICH_PROFILER
    meeting.wait()
    for thread in threads:
        thread.join()
    assert found == {0: [0], 1: [1]}


def test_many_threads_at_once(backend: ctypes.CDLL) -> None:
    results: list[int] = []
    net = Net()
    with EdgeProfiler(net) as profiler:
        net(batch())
        threads = [
            threading.Thread(target=lambda: results.extend(backend.work(3, 0) for _ in range(20))) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == 160 * [TAKEN]
    assert len(rows(profiler.result(), EVENTS)) == 160


def test_a_fork_has_no_profiler(backend: ctypes.CDLL) -> None:
    net = Net()
    with EdgeProfiler(net) as profiler:
        net(batch())
        child = os.fork()
        if child == 0:
            os._exit(backend.work(1, 0))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == NO_PROFILER
        assert backend.work(2, 0) == TAKEN
    assert [row["debug_handle"] for row in rows(profiler.result(), EVENTS)] == [2]


def test_a_program_without_torchreel(path: Path) -> None:
    code = (
        "import ctypes, sys; backend = ctypes.CDLL(sys.argv[1]); backend.by_macros();"
        "assert backend.work(1, 0) == 1 and backend.work_on_a_thread(1) == 1; assert 'torchreel' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)


def test_a_backend_that_was_loaded_before_torchreel(path: Path) -> None:
    code = (
        "import ctypes, sys; backend = ctypes.CDLL(sys.argv[1]); assert backend.work(1, 0) == 1\n"
        "import torch, torchreel\n"
        "model = torch.nn.Linear(2, 2)\n"
        "with torchreel.EdgeProfiler(model) as profiler:\n"
        "    model(torch.ones(1, 2))\n"
        "    assert backend.work(1, 0) == 0\n"
        "assert profiler.result().ops['backend'].to_pylist().count('npu') == 1\n"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)
