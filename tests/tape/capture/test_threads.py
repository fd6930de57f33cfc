"""Threads that a traced function starts: their ops are on the tape, and those of others are not."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
from queue import Queue

import torch

import torchreel


def names(tape: torchreel.Tape) -> list[str]:
    return [op.name for op in tape.program.ops]


def test_each_thread_has_its_number() -> None:
    def function(x: torch.Tensor) -> list[torch.Tensor]:
        found: list[torch.Tensor] = [x.neg()]
        for _ in range(2):
            worker = threading.Thread(target=lambda: found.append(x.sin()))
            worker.start()
            worker.join()
        return found

    tape = torchreel.trace(function, torch.ones(2))
    assert [(op.name, op.thread) for op in tape.program.ops] == [
        ("aten::neg", 0),
        ("aten::sin", 1),
        ("aten::sin", 2),
    ]


def test_a_thread_of_somebody_else_is_not_on_the_tape() -> None:
    requests: Queue[object] = Queue()
    replies: Queue[object] = Queue()

    def work() -> None:
        while requests.get() is not None:
            replies.put(torch.ones(2).cos())

    worker = threading.Thread(target=work)
    worker.start()

    def function(x: torch.Tensor) -> torch.Tensor:
        requests.put("again")
        replies.get()
        return x.sin()

    tape = torchreel.trace(function, torch.ones(2))
    requests.put(None)
    worker.join()
    assert names(tape) == ["aten::sin"]


def test_a_thread_that_outlives_the_trace() -> None:
    """Its later ops go nowhere, and do no harm."""
    go, started = threading.Event(), threading.Event()
    later: list[torch.Tensor] = []

    def work(x: torch.Tensor) -> None:
        x.sin()
        started.set()
        go.wait(300)
        later.append(x.cos())

    workers: list[threading.Thread] = []

    def function(x: torch.Tensor) -> torch.Tensor:
        workers.append(threading.Thread(target=work, args=(x,)))
        workers[0].start()
        started.wait(300)
        return x.neg()

    tape = torchreel.trace(function, torch.ones(2))
    go.set()
    workers[0].join()
    assert names(tape) == ["aten::sin", "aten::neg"] and len(later) == 1
    assert names(torchreel.trace(lambda x: x.exp(), torch.ones(2))) == ["aten::exp"]


def test_a_thread_of_the_last_trace_is_not_on_the_next_tape() -> None:
    go, done = threading.Event(), threading.Event()

    def work() -> None:
        go.wait(300)
        torch.ones(2).cos()
        done.set()

    workers = [threading.Thread(target=work)]
    torchreel.trace(lambda: workers[0].start())

    def function(x: torch.Tensor) -> torch.Tensor:
        go.set()
        done.wait(300)
        return x.sin()

    tape = torchreel.trace(function, torch.ones(2))
    workers[0].join()
    assert "aten::sin" in names(tape)
    assert tape.replay(torch.zeros(2)).tolist() == [0.0, 0.0]


def test_many_threads_at_once() -> None:
    x = torch.randn(64, 8)

    def function(x: torch.Tensor) -> torch.Tensor:
        with ThreadPoolExecutor(8) as pool:
            return torch.stack(list(pool.map(lambda row: (row * 2).sin().sum() + row.norm(), x.unbind())))

    expected = function(x)
    tape = torchreel.trace(function, x)
    assert torch.equal(tape.replay(x), expected)
    other = torch.randn(64, 8)
    assert torch.equal(tape.replay(other), function(other))


def test_a_pool_of_multiprocessing() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        with ThreadPool(2) as pool:
            return torch.stack(pool.map(lambda row: row.sin() * 2, list(x.unbind())))

    tape = torchreel.trace(function, torch.ones(4, 2))
    x = torch.randn(4, 2)
    assert torch.equal(tape.replay(x), function(x))


def test_backward_in_threads_of_the_function() -> None:
    weights = [torch.nn.Parameter(torch.ones(3)) for _ in range(4)]

    def function(x: torch.Tensor) -> None:
        workers = []
        for weight in weights:
            weight.grad = None
            loss = (weight * x).exp().sum()
            workers.append(threading.Thread(target=loss.backward))
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    tape = torchreel.trace(function, torch.ones(3))
    x = torch.randn(3)
    function(x)
    expected = [weight.grad for weight in weights]
    for weight in weights:
        weight.grad = None
    tape.replay(x)
    assert all(torch.equal(weight.grad, value) for weight, value in zip(weights, expected, strict=True))
