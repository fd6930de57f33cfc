"""What the recorder holds for threads: little while they live, nothing after they end."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest

import torchreel
from tests.alone import run_alone
from tests.record.rows import rows

KIB = 1024
MODES: dict[str, dict[str, Any]] = {
    "plain": {},
    "stacks": {"stacks": True},
    "memory": {"memory": True},
    "shapes": {"shapes": True},
    "python": {"python": True, "modules": True},
    "everything": {"shapes": True, "stacks": True, "memory": True, "python": True, "modules": True},
}
# What these would keep, "everything" would keep too.
EACH_MODE = [pytest.param(mode, marks=[pytest.mark.long] * (mode in ("stacks", "memory", "shapes"))) for mode in MODES]
# Without Python's calls: a program that waits in Python is not idle.
WATCHED = {"shapes": True, "stacks": True, "memory": True}
# Ops of a thread that does a little, and how threads are watched.
COMMON = """
import json, os, sys, threading, time
import torch, torchreel
from tests.alone import resident_bytes
from torchreel import _core

path, options = sys.argv[1], json.loads(sys.argv[2])
torch.set_num_threads(1)

def work():
    x = torch.ones(3)
    for _ in range(5):
        x.add_(1)

def held():
    memory = _core.thread_memory()
    return memory["chunks"] + memory["caches"]

def until(condition):
    for _ in range(30_000):
        if condition():
            return
        time.sleep(0.01)
    sys.exit("what is waited for does not come about")
"""


def alone(script: str, path: Path, options: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(run_alone(COMMON + script, path, json.dumps(options)))
    return result


ONE_AFTER_THE_OTHER = """
def run(count):
    for _ in range(count):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

run(20)
recorder = torchreel.record(path, **options).start()
run(20)
before, most = resident_bytes(), 0
run(1000)
if "ring" in options:
    recorder.dump()
else:
    until(lambda: _core.thread_memory()["threads"] <= 1)
after = held()
recorder.stop()
peak = max(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) * 1024
print(json.dumps({"grown": resident_bytes() - before, "peak": peak - before, "held": after, "stopped": held()}))
"""


@pytest.mark.parametrize("mode", EACH_MODE)
def test_a_thousand_threads_one_after_the_other_leave_nothing(tmp_path: Path, mode: str) -> None:
    """At 3 MB each, as the tables of forward calls once took, the peak would be 3 GB."""
    result = alone(ONE_AFTER_THE_OTHER, tmp_path / "a.reel", MODES[mode])
    assert result["peak"] < 400_000_000
    assert result["grown"] < 200_000_000
    assert result["held"] < 500 * KIB  # of the thread that is left
    assert result["stopped"] < 4 * KIB
    reel = torchreel.load(tmp_path / "a.reel")
    assert rows(reel, "select count(*) as n from ops where name = 'aten::add_'") == [{"n": 1020 * 5}]
    assert rows(reel, "select sum(open::int)::int as open, count(distinct thread) as threads from ops") == [
        {"open": 0, "threads": 1020 + (1 if MODES[mode].get("python") else 0)}
    ]


def test_a_flight_recorder_keeps_ended_threads_within_its_bound(tmp_path: Path) -> None:
    result = alone(ONE_AFTER_THE_OTHER, tmp_path / "a.reel", {"ring": "4MiB", "stacks": True})
    assert result["held"] < 5000 * KIB
    assert result["stopped"] < 4 * KIB
    reel = torchreel.load(tmp_path / "a.reel")
    # What an ended thread wrote takes its own size, not that of a chunk: the ring holds all of them.
    assert rows(reel, "select count(*) as n from ops where name = 'aten::add_'") == [{"n": 1020 * 5}]


AT_ONCE = """
count = 200
ready, leave = threading.Barrier(count + 1), threading.Event()

def live():
    work()
    ready.wait()
    leave.wait()

recorder = torchreel.record(path, **options).start()
work()
before = held()
threads = [threading.Thread(target=live) for _ in range(count)]
for thread in threads:
    thread.start()
ready.wait()
living = held()
idle = None
if "ring" not in options:
    until(lambda: held() < count * 2048)
    idle = held()
leave.set()
for thread in threads:
    thread.join()
if "ring" in options:
    recorder.dump()
else:
    until(lambda: _core.thread_memory()["threads"] <= 1)
ended = held()
recorder.stop()
print(json.dumps({"each": (living - before) / count, "idle": idle, "ended": ended, "stopped": held()}))
"""


@pytest.mark.parametrize("mode", [*EACH_MODE, "ring"])
def test_two_hundred_living_threads_cost_little_each(tmp_path: Path, mode: str) -> None:
    result = alone(AT_ONCE, tmp_path / "a.reel", MODES.get(mode, {"ring": "64MiB", "stacks": True}))
    assert 1 * KIB < result["each"] <= 100 * KIB
    if mode != "ring":
        assert result["idle"] < 200 * 2 * KIB  # threads that live and do nothing
        assert result["ended"] < 500 * KIB
    assert result["stopped"] < 4 * KIB
    reel = torchreel.load(tmp_path / "a.reel")
    assert rows(reel, "select count(*) as n from ops where name = 'aten::add_'") == [{"n": 201 * 5}]


def test_a_thread_that_was_idle_goes_on(tmp_path: Path) -> None:
    """Its ops before and after are whole, with their stacks, shapes and an op that was under way meanwhile."""
    script = """
    recorder = torchreel.record(path, **options).start()
    with torch.profiler.record_function("outer"):
        work()
        until(lambda: held() < 2048)
        work()
    recorder.stop()
    print(json.dumps({}))
    """
    alone(textwrap.dedent(script), tmp_path / "a.reel", WATCHED)
    reel = torchreel.load(tmp_path / "a.reel")
    query = """
        select count(*) as n, count(distinct o.stack) as stacks, count(o.inputs) as inputs
        from ops o join ops p on o.parent = p.id
        where o.name = 'aten::add_' and o.stack is not null
    """
    assert rows(reel, query) == [{"n": 10, "stacks": 2, "inputs": 10}]
    assert rows(reel, "select name, open from ops where kind = 'range'") == [{"name": "outer", "open": False}]


def test_a_small_ring_serves_more_threads_than_it_has_chunks(tmp_path: Path) -> None:
    result = alone(AT_ONCE, tmp_path / "a.reel", {"ring": "1MiB"})
    assert result["each"] < 100 * KIB
    reel = torchreel.load(tmp_path / "a.reel")
    assert rows(reel, "select lost_events from processes") == [{"lost_events": 0}]
    assert rows(reel, "select count(*) > 100 as some from ops where name = 'aten::add_'") == [{"some": True}]


def test_threads_of_autograd_and_of_a_pool_give_back_too(tmp_path: Path) -> None:
    script = """
    torch.set_num_threads(2)
    recorder = torchreel.record(path, **options).start()
    x = torch.rand(300, 300, requires_grad=True)
    for _ in range(3):
        (x @ x).relu().sum().backward()
    until(lambda: held() < 64 * 1024)
    recorder.stop()
    print(json.dumps({"stopped": held(), "threads": _core.thread_memory()["threads"]}))
    """
    result = alone(textwrap.dedent(script), tmp_path / "a.reel", WATCHED)
    assert result["stopped"] < 2 * KIB * result["threads"]


def test_a_forked_child_does_not_keep_its_parents_memory(tmp_path: Path) -> None:
    script = """
    recorder = torchreel.record(path, children=False, **options).start()
    work()
    mapped = _core.thread_memory()["mapped"]
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, json.dumps(_core.thread_memory()).encode())
        os._exit(0)
    os.wait()
    child = json.loads(os.read(read, 1000))
    recorder.stop()
    print(json.dumps({"mapped": mapped, "child": child}))
    """
    result = alone(textwrap.dedent(script), tmp_path / "a.reel", {})
    assert result["mapped"] > 0
    assert result["child"]["mapped"] == result["child"]["chunks"] == 0
