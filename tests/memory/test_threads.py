"""Many threads and many processes: nothing is lost, nothing is torn, nobody waits for ever."""

from __future__ import annotations

import functools
import os
import queue
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import torchreel
from tests.alone import alone
from tests.memory.state import assert_tiled, free_neighbours, live, replay, trace
from tests.waiting import until
from torchreel import memory

MIB = 2**20


def run_threads(*works: Callable[[], None], while_they_run: Callable[[], None] | None = None) -> None:
    """All of them at once; what one of them raises is raised here."""
    errors: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    while while_they_run is not None and any(thread.is_alive() for thread in threads):
        while_they_run()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def sizes(seed: int, count: int) -> list[int]:
    """Mostly small, some large, a few huge."""
    chance = random.Random(seed)
    return [int(2 ** chance.uniform(0, 20 if chance.random() < 0.97 else 24)) for _ in range(count)]


def pattern(tensor: torch.Tensor, number: int) -> None:
    tensor.fill_(number % 251)


def is_whole(tensor: torch.Tensor, number: int) -> bool:
    return bool((tensor == number % 251).all())


def churn(seed: int, count: int, held_at_most: int = 30) -> None:
    """Tensors that come and go in no order; each holds its pattern to the end."""
    chance = random.Random(seed)
    held: list[tuple[torch.Tensor, int]] = []
    for number, size in enumerate(sizes(seed, count)):
        tensor = torch.empty(size, dtype=torch.uint8)
        pattern(tensor, number)
        held.append((tensor, number))
        if len(held) > held_at_most:
            old, its_number = held.pop(chance.randrange(len(held)))
            assert is_whole(old, its_number)
    assert all(is_whole(*each) for each in held)


def assert_all_is_free() -> None:
    stats = memory.memory_stats()
    assert stats["allocation.all.current"] == stats["allocated_bytes.all.current"] == 0
    assert stats["requested_bytes.all.current"] == 0

    def nothing_is_reserved() -> bool:
        memory.empty_cache()
        return memory.memory_stats()["reserved_bytes.all.current"] == 0

    until(nothing_is_reserved)  # a thread that has been joined may still be on its way out, with its cache


@pytest.mark.parametrize("count", [700, pytest.param(3000, marks=pytest.mark.long)])
@alone
def test_random_sizes_keep_what_is_written(count: int) -> None:
    memory.use_caching_allocator(decay=0.01)
    churn(0, count)
    assert_tiled(memory.snapshot())
    assert_all_is_free()


def stress(seconds: float, per_round: int) -> None:
    """Threads, decay, emptied caches, switches and snapshots, all at once."""
    memory.use_caching_allocator(decay=0.01)
    memory.record_history(context="alloc", max_entries=100_000)
    end = time.monotonic() + seconds
    seeds = iter(range(10**9))
    while True:
        chance = random.Random(next(seeds))

        def disturb(chance: random.Random = chance) -> None:
            match chance.randrange(6):
                case 0:
                    memory.empty_cache()
                case 1:
                    assert_tiled(memory.snapshot())
                case 2:
                    memory.use_caching_allocator(False)
                case 3:
                    memory.record_history(None)
                case 4:
                    memory.record_history(context=chance.choice([None, "state", "alloc", "all"]), max_entries=100_000)
                case 5:
                    memory.use_caching_allocator(
                        thread_caches=chance.random() < 0.8, huge_pages=chance.random() < 0.5, decay=0.01
                    )
            time.sleep(0.002)

        works = [functools.partial(churn, next(seeds), per_round) for _ in range(4)]
        run_threads(*works, while_they_run=disturb)
        if time.monotonic() > end:
            break
    memory.record_history(None)
    assert_tiled(memory.snapshot())
    assert_all_is_free()


@alone
def test_a_short_stress() -> None:
    stress(0, 1500)


@pytest.mark.long
@alone
def test_a_long_stress() -> None:
    stress(180, 3000)


@pytest.mark.parametrize("history", [False, True])
@alone
def test_tensors_are_freed_by_other_threads(history: bool) -> None:
    memory.use_caching_allocator()
    if history:
        memory.record_history()
    start = memory.snapshot()
    line: queue.Queue[tuple[torch.Tensor, int] | None] = queue.Queue(maxsize=50)

    def produce(seed: int) -> Callable[[], None]:
        def work() -> None:
            for number, size in enumerate(sizes(seed, 1000)):
                tensor = torch.empty(size, dtype=torch.uint8)
                pattern(tensor, number)
                line.put((tensor, number))
            line.put(None)

        return work

    def consume() -> None:
        while (item := line.get()) is not None:
            assert is_whole(*item)

    run_threads(produce(1), produce(2), produce(3), consume, consume, consume)
    end = memory.snapshot()
    assert_tiled(end)
    if history:
        assert replay(trace(end), live(start)) == live(end)
    assert_all_is_free()


@alone
def test_threads_that_end_give_their_caches_back() -> None:
    memory.use_caching_allocator()
    for _ in range(20):
        run_threads(*[lambda: [torch.empty(10_000) for _ in range(100)].clear()] * 4)
    # A thread that has been joined may still be on its way out.
    until(lambda: memory.memory_stats()["thread_cached_bytes"] == 0)
    snapshot, stats = memory.snapshot(), memory.memory_stats()
    assert live(snapshot) == {}
    assert free_neighbours(snapshot) == 0 and stats["thread_cached_bytes"] == 0
    assert stats["allocation.all.allocated"] == stats["allocation.all.freed"] == 20 * 4 * 100
    assert stats["reserved_bytes.all.peak"] < 100 * MIB, "their memory was used again"


@alone
def test_two_hundred_threads() -> None:
    memory.use_caching_allocator()
    memory.record_history(context="alloc")
    gate = threading.Barrier(200)
    kept: list[torch.Tensor] = []

    def work(seed: int) -> None:
        gate.wait()
        kept.append(torch.ones(1000))
        churn(seed, 20, 5)

    start = memory.snapshot()
    run_threads(*(functools.partial(work, seed) for seed in range(200)))
    end = memory.snapshot()
    assert replay(trace(end), live(start)) == live(end)
    assert len(live(end)) == 200 and all(float(tensor.sum()) == 1000 for tensor in kept)


@alone
def test_autograd_in_threads() -> None:
    memory.use_caching_allocator()
    memory.record_history()
    weight = torch.ones(300, 300, requires_grad=True)

    def work() -> None:
        for _ in range(20):
            (gradient,) = torch.autograd.grad((torch.ones(5, 300) @ weight).sum(), weight)
            assert bool((gradient == 5).all())

    run_threads(*[work] * 6)
    assert_tiled(memory.snapshot())


def in_child(work: Callable[[], None]) -> int:
    """The exit code of a forked child that does this; one that hangs is killed."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    deadline = time.monotonic() + 500
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -signal.SIGKILL


@pytest.mark.parametrize("history", [False, True])
@pytest.mark.parametrize("forks", [4, pytest.param(15, marks=pytest.mark.long)])
@alone
def test_forks_under_churning_threads(history: bool, forks: int) -> None:
    torch.set_num_threads(1)
    memory.use_caching_allocator(decay=0.02)
    if history:
        memory.record_history(max_entries=2000)
    mine = torch.full((1000,), 7.0)
    over = threading.Event()

    def forever(seed: int) -> None:
        while not over.is_set():
            churn(seed, 50, 10)
            # New code, so that stacks are new to the history, too.
            eval(compile(f"torch.ones({seed % 100 + 1})\n", f"made {seed}", "eval"), {"torch": torch})
            seed += 1

    def child() -> None:
        assert float(mine.sum()) == 7000
        held = [torch.full((size,), 3, dtype=torch.uint8) for size in (10, 5000, 3 * MIB, 30 * MIB)]
        eval(compile("torch.ones(77)\n", "of the child", "eval"), {"torch": torch})
        assert all(bool((tensor == 3).all()) for tensor in held)
        del held
        memory.empty_cache()
        snapshot = memory.snapshot()
        assert_tiled(snapshot)
        assert mine.data_ptr() in live(snapshot)
        memory.record_history("all", clear_history=True)
        torch.ones(5)
        assert memory.snapshot()["device_traces"][0]

    threads = [threading.Thread(target=forever, args=(number * 10**6,), daemon=True) for number in range(3)]
    for thread in threads:
        thread.start()
    codes = [in_child(child) for _ in range(forks)]
    over.set()
    for thread in threads:
        thread.join()
    assert codes == [0] * forks
    assert float(mine.sum()) == 7000


@alone
def test_a_forked_child_has_its_own_history() -> None:
    memory.record_history()
    tensor = torch.empty(1234, dtype=torch.uint8)

    def child() -> None:
        other = torch.empty(4321, dtype=torch.uint8)
        snapshot = memory.snapshot()
        assert {1234, 4321} <= set(live(snapshot).values())
        assert replay(trace(snapshot), {}).keys() <= live(snapshot).keys()
        assert other.numel() == 4321

    assert in_child(child) == 0
    assert 4321 not in live(memory.snapshot()).values()
    assert tensor.numel() == 1234


class Numbers(Dataset):  # type: ignore[type-arg]
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((2000,), float(index)) + torch.zeros(2000)


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.long)])
@alone
def test_workers_of_a_data_loader(method: str) -> None:
    memory.use_caching_allocator()
    memory.record_history()
    # Spawned workers import the main module, which is the server of forks here.
    sys.modules["__main__"].__spec__ = None
    loader = DataLoader(Numbers(), batch_size=4, num_workers=2, multiprocessing_context=method)
    for _ in range(2 if method == "fork" else 1):
        means = [float(batch.mean()) for batch in loader]
        assert means == [index * 4 + 1.5 for index in range(10)]
    assert_tiled(memory.snapshot())


@alone
def test_callbacks_of_threads_that_find_no_memory() -> None:
    memory.use_caching_allocator()
    memory.record_history()
    memory.set_limit("300MiB")
    told: list[int] = []
    memory.on_out_of_memory(lambda device, asked, allocated, free: told.append(asked))

    def work(seed: int) -> None:
        for turn in range(20):
            churn(seed * 20 + turn, 20, 3)
            with pytest.raises(torch.OutOfMemoryError, match=r"limit of 300\.0 MiB"):
                torch.empty(310 * MIB, dtype=torch.uint8)

    # What the others hold is little, so that only the large one is refused.
    run_threads(*(functools.partial(work, seed) for seed in range(4)))
    assert told.count(310 * MIB) == 80
    assert memory.memory_stats()["num_ooms"] == len(told)
    ooms = [event for event in trace(memory.snapshot()) if event["action"] == "oom"]
    assert len(ooms) == len(told)


@alone
def test_a_recording_under_threads_with_the_cache(tmp_path: Path) -> None:
    memory.use_caching_allocator(decay=0.01)
    with torchreel.record(tmp_path / "a.reel", memory=True, stacks=True):
        run_threads(*[functools.partial(churn, seed, 300) for seed in range(4)], while_they_run=memory.empty_cache)
    rows = torchreel.load(tmp_path / "a.reel").allocs.to_pylist()
    made = sum(row["action"] == "alloc" for row in rows)
    assert made >= 4 * 300
    assert any(row["action"] == "segment_free" for row in rows)


@alone
def test_the_end_of_the_program_with_tensors_and_threads_alive() -> None:
    memory.use_caching_allocator(decay=0.01)
    memory.record_history()
    globals()["kept"] = [torch.ones(size) for size in (10, 1000, 10**6)]
    churned = threading.Event()

    def work() -> None:
        churn(1, 100)
        held = torch.ones(1000)
        churned.set()
        threading.Event().wait()  # a thread within an op of torch takes the process down, with any allocator
        del held

    threading.Thread(target=work, daemon=True).start()
    churned.wait()
