"""Observers: every event, as it happens, in its thread; safe against what they do themselves."""

from __future__ import annotations

import gc
import os
import threading

import pytest
import torch

from tests.alone import alone, run_python
from tests.memory.state import trace
from torchreel import _core, memory
from torchreel.errors import OptionError, RecorderError

MIB = 2**20


@pytest.mark.parametrize("allocator", ["system", "caching"])
@alone
def test_an_observer_hears_what_the_history_keeps(allocator: str) -> None:
    memory.use_caching_allocator(allocator == "caching", thread_caches=False)
    memory.record_history()
    memory.record_history(clear_history=True)
    events: list[memory.MemoryEvent] = []
    with memory.observe(events.append):
        held = [torch.ones(100), torch.ones(MIB)]
        held.pop()
        memory.empty_cache()
        memory.snapshot()
    torch.ones(50)
    kept = [
        (event["action"], event.get("addr"), event["size"], event["pool_id"])
        for event in trace(memory.snapshot())
        if event["action"] != "oom"
    ]
    assert [tuple(event) for event in events] == kept[: len(events)]
    actions = [event.action for event in events]
    assert actions.count("alloc") == 2 and actions[-1] == "snapshot"
    assert ("segment_free" in actions) == (allocator == "caching")
    assert kept[len(events)][0] == "alloc", "after the end of the block nothing is told"


@alone
def test_events_are_told_whatever_is_skipped_or_kept() -> None:
    memory.record_history(enabled="state", context=None, skip_actions=["alloc", "free_completed"])
    events: list[memory.MemoryEvent] = []
    memory.observe(events.append)
    torch.ones(123)
    assert [(event.action, event.size) for event in events] == [
        ("alloc", 492),
        ("free_requested", 492),
        ("free_completed", 492),
    ]


@alone
def test_what_an_observer_allocates_is_not_told_and_counted() -> None:
    memory.record_history()
    sizes: list[int] = []

    def watch(event: memory.MemoryEvent) -> None:
        sizes.append(event.size)
        torch.ones(1000)

    observer = memory.observe(watch)
    assert memory.untold_events() == 0
    held = torch.ones(10)
    assert sizes == [40]
    assert memory.untold_events() == 2  # an alloc and a free, which is one event until it is written
    del held
    assert sizes == [40] * 3
    observer.remove()
    assert [event["size"] for event in trace(memory.snapshot())].count(4000) == 9, "the history has them"


@alone
def test_what_an_observer_raises_is_printed_and_hurts_nobody() -> None:
    memory.record_history()
    calls: list[str] = []

    def fail(event: memory.MemoryEvent) -> None:
        calls.append(event.action)
        raise ValueError("of the observer")

    memory.observe(fail)
    memory.observe(lambda event: calls.append("second"))
    try:
        held = torch.ones(10)
        try:
            raise KeyError("of the program")
        finally:
            del held  # a free while an exception is under way
    except KeyError as error:
        assert error.args == ("of the program",)
    assert calls == ["alloc", "second", "free_requested", "second", "free_completed", "second"]


@alone
def test_observers_come_and_go_in_callbacks() -> None:
    memory.record_history()
    heard: list[str] = []
    later: list[memory.Observer] = []

    def once(event: memory.MemoryEvent) -> None:
        heard.append("once")
        first.remove()
        later.append(memory.observe(lambda event: heard.append("later")))

    first = memory.observe(once)
    held = torch.ones(10)
    assert heard == ["once"]
    del held
    assert heard == ["once", "later", "later"]
    first.remove()  # a second time
    later[0].remove()
    torch.ones(10)
    assert heard == ["once", "later", "later"]


@alone
def test_each_thread_is_told_of_its_own_events() -> None:
    memory.use_caching_allocator()
    memory.record_history()
    heard: dict[int, list[int]] = {}
    lock = threading.Lock()

    def watch(event: memory.MemoryEvent) -> None:
        if event.action == "alloc":
            with lock:
                heard.setdefault(threading.get_ident(), []).append(event.size)

    def work(size: int) -> None:
        mine[threading.get_ident()] = size
        for _ in range(500):
            torch.empty(size, dtype=torch.uint8)

    mine: dict[int, int] = {}
    with memory.observe(watch):
        barrier = threading.Barrier(4)
        threads = [
            threading.Thread(target=lambda size=size: (barrier.wait(), work(size), barrier.wait()))
            for size in (100, 2000, 30_000, 2 * MIB)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert heard == {thread: [size] * 500 for thread, size in mine.items()}


@alone
def test_backward_and_compute_threads_without_the_gil_are_told() -> None:
    memory.record_history()
    count = 0

    def watch(event: memory.MemoryEvent) -> None:
        nonlocal count
        count += event.action == "alloc"
        gc.collect(0)

    model = torch.nn.Sequential(torch.nn.Linear(50, 50), torch.nn.ReLU(), torch.nn.Linear(50, 1))
    memory.record_history(clear_history=True)
    with memory.observe(watch):
        for _ in range(5):
            model(torch.randn(300, 50)).sum().backward()
            model.zero_grad()
    kept = sum(event["action"] == "alloc" for event in trace(memory.snapshot()))
    assert count == kept > 50


@alone
def test_a_forked_child_is_told_too() -> None:
    memory.record_history()
    events: list[memory.MemoryEvent] = []
    memory.observe(events.append)
    child = os.fork()
    if child == 0:
        before = len(events)
        torch.ones(10)
        os._exit(0 if len(events) == before + 3 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@alone
def test_a_child_that_is_forked_while_others_are_told_can_end() -> None:
    memory.record_history()
    inside, leave = threading.Event(), threading.Event()

    def watch(event: memory.MemoryEvent) -> None:
        if threading.current_thread() is not threading.main_thread():
            inside.set()
            leave.wait()

    memory.observe(watch)
    thread = threading.Thread(target=lambda: torch.ones(10))
    thread.start()
    inside.wait()
    child = os.fork()
    if child == 0:
        _core.silence_events()  # as at the end of the program
        os._exit(0)
    leave.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_end_of_the_program_and_events_of_the_decay() -> None:
    """The thread of the decay gives segments back, and tells of them, while the interpreter ends."""
    script = """
import atexit, threading, torch
from torchreel import _core, memory
memory.use_caching_allocator(decay=0.01)
memory.record_history()
within, ending = threading.Event(), threading.Event()
def watch(event):
    if event.action == "segment_free":
        within.set()
        ending.wait()
memory.observe(watch)
atexit.register(ending.set)
held = [torch.empty(12 * 2**18) for _ in range(100)]
held.clear()
within.wait()
print("end")
"""
    done = run_python("-c", script)
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr


def test_an_observer_needs_a_function_and_a_history() -> None:
    with pytest.raises(RecorderError, match=r"needs a history: call torchreel\.memory\.record_history\(\) before"):
        memory.observe(print)
    with pytest.raises(OptionError, match="observe takes a function of one event, not 5"):
        memory.observe(5)
