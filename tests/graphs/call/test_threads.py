"""Several threads, and processes that are forked: each has its own position and memory."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from tests.alone import run_alone
from torchreel import graphed
from torchreel.graphs import status

_THREADS = 4


def together(*works: Callable[[], None]) -> None:
    """Run them at the same time; the first failure of any is that of the test."""
    failures: list[BaseException] = []
    begin = threading.Barrier(len(works))

    def run(work: Callable[[], None]) -> None:
        try:
            begin.wait()
            work()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)).eval()


def test_one_function_in_several_threads() -> None:
    model = mlp()
    fast = graphed(model)

    def work(seed: int) -> None:
        random = torch.Generator().manual_seed(seed)
        kept = []
        for _ in range(200):
            x = torch.randn(3, 16, generator=random)
            with torch.no_grad():
                kept.append((fast(x), model(x)))
            kept = kept[-3:]
            assert all(torch.equal(a, b) for a, b in kept)

    works = [functools.partial(work, seed) for seed in range(_THREADS)]
    together(*works)
    recorded = status(fast).replays
    together(*works)  # calls while another thread records are eager ones: now there is nothing left to record
    assert status(fast).replays - recorded >= _THREADS * 200 / 2


def test_different_functions_in_several_threads() -> None:
    def worker(place: int) -> tuple[Callable[[], None], Any]:
        model = mlp()
        random = torch.Generator().manual_seed(place)  # its own: what others draw meanwhile ends a recording
        fast = graphed(lambda x: model(x) * place)

        def work() -> None:
            for _ in range(200):
                x = torch.randn(2 + place, 16, generator=random)
                with torch.no_grad():
                    assert torch.equal(fast(x), model(x) * place)

        return work, fast

    works, functions = zip(*(worker(place) for place in range(_THREADS)), strict=True)
    together(*works)
    recorded = [status(fast).replays for fast in functions]
    together(*works)  # calls while another thread records are eager ones: now there is nothing left to record
    assert [status(fast).replays - before for fast, before in zip(functions, recorded, strict=True)] == [200] * _THREADS


def test_training_in_several_threads() -> None:
    def worker(seed: int) -> Callable[[], None]:
        random = torch.Generator().manual_seed(seed)
        model, other = mlp(), mlp()
        other.load_state_dict(model.state_dict())
        fast = graphed(model)

        def gradients(use: Any, model: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
            model.zero_grad()
            use(x).square().sum().backward()
            return [one.grad for one in model.parameters() if one.grad is not None]

        def work() -> None:
            for _ in range(100):
                x = torch.randn(3, 16, generator=random)
                ours, theirs = gradients(fast, model, x), gradients(other, other, x)
                assert len(ours) == 4 and all(map(torch.equal, ours, theirs))

        return work

    together(*(worker(seed) for seed in range(_THREADS)))


def test_one_model_differentiated_in_several_threads() -> None:
    model = mlp()
    fast = graphed(model)
    parameters = list(model.parameters())

    def work() -> None:
        for _ in range(100):
            x = torch.randn(3, 16)
            ours = torch.autograd.grad(fast(x).square().sum(), parameters)
            theirs = torch.autograd.grad(model(x).square().sum(), parameters)
            assert all(map(torch.equal, ours, theirs))

    together(*[work] * _THREADS)


def test_a_backward_in_another_thread_than_its_forward() -> None:
    model = mlp()
    fast = graphed(model)
    parameters = list(model.parameters())
    waiting: list[tuple[torch.Tensor, torch.Tensor]] = []
    ready, done = threading.Semaphore(0), threading.Semaphore(0)
    turns = 100

    def forwards() -> None:
        for _ in range(turns):
            x = torch.randn(3, 16)
            waiting.append((fast(x).square().sum(), x))
            ready.release()
            for _ in range(3):  # on the memory that the other thread's backward uses
                y = torch.randn(3, 16)
                with torch.no_grad():
                    assert torch.equal(fast(y), model(y))
            done.acquire()

    def backwards() -> None:
        for _ in range(turns):
            ready.acquire()
            try:
                loss, x = waiting.pop()
                ours = torch.autograd.grad(loss, parameters)
                theirs = torch.autograd.grad(model(x).square().sum(), parameters)
                assert all(map(torch.equal, ours, theirs))
            finally:
                done.release()

    together(forwards, backwards)


def test_outputs_outlive_their_thread() -> None:
    fast = graphed(lambda x: x.sin() * 2)
    kept: list[tuple[torch.Tensor, torch.Tensor]] = []

    def work() -> None:
        for _ in range(5):
            x = torch.randn(1000)
            kept.append((fast(x), x.sin() * 2))

    for _ in range(3):
        together(work)
    for _ in range(5):
        work()
    assert all(torch.equal(a, b) for a, b in kept)


def test_many_short_threads() -> None:
    fast = graphed(lambda x: x.cos() + 1)

    def work() -> None:
        x = torch.randn(10)
        assert torch.equal(fast(x), x.cos() + 1)

    for _ in range(300):
        together(work)
    assert status(fast).replays >= 290
    assert len(status(fast).nodes) < 20  # those of threads that have ended are gone


def test_a_changed_number_of_threads() -> None:
    model = mlp()
    fast = graphed(model)
    before = torch.get_num_threads()
    try:
        for threads in (1, 1, 1, 2, 2, 2, 1, 2):
            torch.set_num_threads(threads)
            x = torch.randn(64, 16)
            with torch.no_grad():
                assert torch.equal(fast(x), model(x))
    finally:
        torch.set_num_threads(before)
    assert status(fast).replays == 4


class Sines(Dataset[torch.Tensor]):
    """Each item is computed by a graphed function."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self._function = function

    def __len__(self) -> int:
        return 8

    def __getitem__(self, place: int) -> torch.Tensor:
        return self._function(torch.full((4,), float(place)))


def test_workers_that_are_forked_while_graphs_exist() -> None:
    fast = graphed(lambda x: x.sin() * 2)
    held = [fast(torch.full((4,), 9.0)) for _ in range(5)]
    loader = DataLoader(Sines(fast), batch_size=2, num_workers=2, multiprocessing_context="fork")
    for _ in range(2):
        found = torch.cat(list(loader))
        assert torch.equal(found, torch.stack([torch.full((4,), float(i)).sin() * 2 for i in range(8)]))
        x = torch.randn(4)
        assert torch.equal(fast(x), x.sin() * 2)
    assert all(torch.equal(one, torch.full((4,), 9.0).sin() * 2) for one in held)


@pytest.mark.parametrize("ending", ["", "import os; os._exit(0)", "import sys; sys.exit(0)"])
def test_a_process_ends_with_threads_and_graphs(ending: str) -> None:
    script = """
        import threading, torch
        from torch import nn
        from torchreel import graphed
        model = nn.Linear(4, 4)
        fast = graphed(model)
        kept = []
        def work():
            for _ in range(5):
                kept.append(fast(torch.randn(2, 4)))
            kept[-1].sum().backward()
        threads = [threading.Thread(target=work) for _ in range(3)]
        [one.start() for one in threads]
        [one.join() for one in threads]
        print(len(kept), flush=True)
        """
    assert run_alone(script + ending) == "15\n"
