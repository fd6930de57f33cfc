"""What users of graph trees asked for, one test per thread: each is a program that went wrong for somebody."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import pytest
import torch
from torch.nn import functional

import torchreel
from torchreel import graphs


def scaled(x: torch.Tensor) -> torch.Tensor:
    return (x * 2).sin() + 1


def test_pytorch_144386_the_cpu_is_not_silently_left_out() -> None:
    """On CPU tensors the documented example raised nothing and recorded nothing."""
    function = torchreel.graphed(scaled)
    for _ in range(5):
        assert torch.equal(function(torch.ones(3)), scaled(torch.ones(3)))
    status = graphs.status(function)
    assert status.replays == 3 and len(status.nodes) >= 1
    strict = torchreel.graphed(scaled, held="error")
    for _ in range(3):
        strict(torch.ones(3))
    kept = strict(torch.ones(3))
    with pytest.raises(torchreel.errors.HeldOutputError):
        strict(torch.zeros(3))
    assert torch.equal(kept, scaled(torch.ones(3)))


@pytest.mark.parametrize("marked", [False, True])
def test_pytorch_170604_two_outputs_of_one_function_are_kept(marked: bool) -> None:
    function = torchreel.graphed(scaled)
    for _ in range(6):
        x, y = torch.randn(4), torch.randn(4)
        if marked:
            torchreel.mark_step_begin()
        first = function(x)
        if marked:
            torchreel.mark_step_begin()
        second = function(y)
        assert torch.equal(first, scaled(x)) and torch.equal(second, scaled(y))
        assert torch.equal(first + second, scaled(x) + scaled(y))


def test_pytorch_158551_a_clone_is_enough() -> None:
    function = torchreel.graphed(scaled, held="error")
    kept = []
    for step in range(20):
        torchreel.mark_step_begin()
        kept.append((step, function(torch.full((3,), float(step))).clone()))
    assert all(torch.equal(out, scaled(torch.full((3,), float(step)))) for step, out in kept)


def test_pytorch_148439_micro_batches_of_a_pipeline() -> None:
    """All forwards of the micro-batches, then all backwards."""
    first, second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    ours, theirs = [torchreel.graphed(first), torchreel.graphed(second)], [first, second]
    for _ in range(6):
        batches = [torch.randn(2, 4) for _ in range(4)]
        found = []
        for stages in (ours, theirs):
            first.zero_grad()
            second.zero_grad()
            losses = [stages[1](stages[0](batch).relu()).pow(2).sum() for batch in batches]
            for loss in losses:
                loss.backward()
            found.append([*losses, *(one.grad.clone() for one in [*first.parameters(), *second.parameters()])])
        assert all(map(torch.equal, *found))


@pytest.mark.parametrize("warm_up", [0, 1, 2, 3])
@pytest.mark.parametrize("calls", [1, 2, 3, 4])
def test_pytorch_122192_any_number_of_warm_ups(calls: int, warm_up: int) -> None:
    """The same program must not fail after two calls and work after three."""
    torch.manual_seed(0)
    layer = torch.nn.Linear(3, 3)
    function = torchreel.graphed(lambda x: layer(x).relu(), warm_up=warm_up)
    out = x = torch.randn(2, 3)
    for _ in range(calls):
        out = function(out)
    with torch.no_grad():
        for _ in range(calls):
            x = layer(x).relu()
    assert torch.equal(out, x)
    out.sum().backward()
    assert layer.weight.grad is not None


@pytest.mark.parametrize("whole", [False, True], ids=["backward outside", "backward inside"])
def test_pytorch_169545_gradients_accumulate(whole: bool) -> None:
    def run(wrap: Any) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def loss_of(x: torch.Tensor) -> torch.Tensor:
            loss = model(x).pow(2).mean()
            if whole:
                loss.backward()
                return loss.detach()
            return loss

        function = wrap(loss_of)
        found = []
        for step in range(16):
            loss = function(torch.randn(3, 4))
            if not whole:
                loss.backward()
            found += [loss.detach().clone(), *(one.grad.clone() for one in model.parameters())]
            if step % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()
        return found

    assert all(map(torch.equal, run(lambda one: one), run(torchreel.graphed)))


def test_pytorch_176846_backwards_that_never_come() -> None:
    """A forward whose backward is never called holds nobody up, and says nothing."""
    layer = torch.nn.Linear(3, 3)
    function = torchreel.graphed(lambda x: layer(x).sum())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for step in range(40):
            x = torch.randn(2, 3)
            loss = function(x)
            assert torch.equal(loss, layer(x).sum())
            if step % 5 == 0:
                layer.zero_grad()
                loss.backward()
    assert graphs.status(function).replays > 30


def test_pytorch_138949_recursion() -> None:
    """A function that is called with its own output, forward and back through all of it."""
    layer = torch.nn.Linear(3, 3)
    cell = torchreel.graphed(lambda x: layer(x).tanh())
    for depth in (1, 2, 5, 9, 5):
        x = torch.randn(2, 3)
        found = []
        for function in (cell, lambda x: layer(x).tanh()):
            layer.zero_grad()
            out = x
            for _ in range(depth):
                out = function(out)
            out.sum().backward()
            found.append([out, *(one.grad.clone() for one in layer.parameters())])
        assert all(map(torch.equal, *found))


def test_pytorch_188150_endless_shapes_have_a_limit_and_a_warning() -> None:
    function = torchreel.graphed(scaled, limit=12)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for size in range(1, 40):
            for _ in range(3):
                assert torch.equal(function(torch.ones(size)), scaled(torch.ones(size)))
    assert 1 <= len(caught) <= 2 and all("pad_to" in str(one.message) for one in caught)
    status = graphs.status(function)
    assert len(status.shapes) == 39 and len(status.skips) == 27
    assert len({node.recording for node in status.nodes}) <= 12


def test_pytorch_196385_skip_dynamic_records_the_first_shapes_only() -> None:
    function = torchreel.graphed(scaled, skip_dynamic=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for size in [4, 4, 4, 5, 5, 5, 5, 6, 6, 6, 4, 4]:
            assert torch.equal(function(torch.ones(size)), scaled(torch.ones(size)))
    status = graphs.status(function)
    assert {node.call for node in status.nodes} == {"float32[4]"}
    assert status.replays == 3


def test_pytorch_128424_shapes_are_shown() -> None:
    function = torchreel.graphed(scaled)
    for size in (2, 3, 5):
        for _ in range(3):
            function(torch.ones(size))
    text = str(graphs.status(function))
    assert all(f"float32[{size}]" in text for size in (2, 3, 5))


def test_pytorch_175557_a_key_value_cache_that_grows_by_cat() -> None:
    torch.manual_seed(0)
    project = torch.nn.Linear(4, 12)

    def decode(x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        query, key, value = project(x).split(4, -1)
        keys, values = torch.cat([keys, key]), torch.cat([values, value])
        return functional.scaled_dot_product_attention(query[None], keys[None], values[None])[0], keys, values

    function = torchreel.graphed(decode, limit=100)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(4):
            before = function.replays()
            ours = theirs = (torch.randn(1, 4), torch.empty(0, 4), torch.empty(0, 4))
            history = []
            for _ in range(20):
                ours, theirs = function(*ours), decode(*theirs)
                history.append((ours, theirs))
            for found, wanted in history:
                assert all(map(torch.equal, found, wanted))
    assert function.replays() - before == 20  # nothing is recorded any more


def test_pytorch_123177_threads() -> None:
    """Four threads at once, each with its own tensors, forward and backward."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    function = torchreel.graphed(lambda x: model(x).sum())
    wrong: list[Any] = []

    def work(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        try:
            for step in range(150):
                x = torch.randn(3, 4, generator=generator, requires_grad=step % 2 == 0)
                loss, wanted = function(x), model(x).sum()
                if not torch.equal(loss, wanted):
                    wrong.append((seed, step, "forward"))
                if step % 2 == 0 and not torch.equal(*(torch.autograd.grad(one, x)[0] for one in (loss, wanted))):
                    wrong.append((seed, step, "backward"))
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_threads_that_come_and_go() -> None:
    """Each has a pool of its own, which ends with it."""
    function = torchreel.graphed(scaled)
    wrong: list[Any] = []

    def work() -> None:
        try:
            for _ in range(4):
                if not torch.equal(function(torch.ones(3)), scaled(torch.ones(3))):
                    wrong.append("value")
        except Exception as error:
            wrong.append(error)

    for _ in range(200):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert wrong == []


def test_outputs_of_one_thread_used_in_another() -> None:
    function = torchreel.graphed(scaled)
    for _ in range(3):
        function(torch.ones(3))
    made: list[torch.Tensor] = []
    thread = threading.Thread(target=lambda: made.extend(function(torch.full((3,), float(i))) for i in range(20)))
    thread.start()
    thread.join()
    for _ in range(20):
        function(torch.zeros(3))
    assert all(torch.equal(out, scaled(torch.full((3,), float(i)))) for i, out in enumerate(made))


def test_backward_in_another_thread_than_forward() -> None:
    layer = torch.nn.Linear(3, 1)
    function = torchreel.graphed(lambda x: layer(x).tanh().sum())
    for _ in range(3):
        function(torch.randn(2, 3)).backward()
    for _ in range(20):
        x = torch.randn(2, 3, requires_grad=True)
        loss = function(x)
        thread = threading.Thread(target=loss.backward)
        thread.start()
        while thread.is_alive():
            function(torch.randn(2, 3))
        thread.join()
        assert torch.equal(x.grad, torch.autograd.grad(layer(x).tanh().sum(), x)[0])


def test_pytorch_150484_sizes_are_padded_to_a_list() -> None:
    function = torchreel.graphed(lambda x: x * 2 + 1, pad_to={0: [4, 8]})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for size in [1, 2, 3, 4, 5, 6, 7, 8, 3, 5, 2, 7, 9, 9, 9]:
            x = torch.randn(size)
            assert torch.equal(function(x), x * 2 + 1)
