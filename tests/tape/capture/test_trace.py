"""Tracing: what it refuses, what it leaves as it was, and in which surroundings a tape replays."""

from __future__ import annotations

import threading
from typing import Any

import numpy
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import torchreel
from torchreel.errors import ReplayError, TraceError


def names(tape: torchreel.Tape) -> list[str]:
    return [op.name for op in tape.program.ops]


def test_the_result_of_the_call_is_not_lost() -> None:
    seen = []
    torchreel.trace(lambda x: seen.append(x + 1), torch.ones(2))
    assert seen[0].tolist() == [2.0, 2.0]


def test_within_a_trace() -> None:
    def outer(x: torch.Tensor) -> torch.Tensor:
        torchreel.trace(lambda y: y + 1, x)
        return x

    with pytest.raises(TraceError, match=r"A tape is being made already, and there is one at a time"):
        torchreel.trace(outer, torch.ones(2))
    assert_nothing_left_on()


def test_two_blocks_at_once() -> None:
    with torchreel.tracing(), pytest.raises(TraceError, match="one at a time"), torchreel.tracing():
        pass
    assert_nothing_left_on()


def test_a_block_is_traced_once() -> None:
    block = torchreel.tracing()
    with block:
        torch.ones(2)
    with pytest.raises(TraceError, match=r"call torchreel\.tracing\(\) anew"), block:
        pass


def test_a_tape_that_is_not_complete() -> None:
    with torchreel.tracing() as tape:
        assert repr(tape) == "<Tape, being made>"
        with pytest.raises(TraceError, match="it can be used after the `with` block"):
            tape.replay()
        torch.ones(2)
    assert len(tape) == 1


def test_under_a_fake_mode() -> None:
    with FakeTensorMode(), pytest.raises(TraceError, match=r"Fake tensors have no values.*outside of FakeTensorMode"):
        torchreel.trace(lambda x: x + 1, torch.ones(2))
    assert_nothing_left_on()


def test_fake_inputs() -> None:
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(torch.ones(2))
    with pytest.raises(TraceError, match="Fake tensors have no values"):
        torchreel.trace(lambda x: x + 1, fake)
    assert_nothing_left_on()


@pytest.mark.parametrize(
    "error", [ValueError("no"), KeyboardInterrupt(), SystemExit(3)], ids=lambda e: type(e).__name__
)
def test_a_function_that_raises(error: BaseException) -> None:
    def function(x: torch.Tensor) -> None:
        x + 1
        raise error

    with pytest.raises(type(error)):
        torchreel.trace(function, torch.ones(2))
    assert_nothing_left_on()


def test_a_block_that_raises() -> None:
    with pytest.raises(ValueError, match="no"), torchreel.tracing() as tape:
        torch.ones(2)
        raise ValueError("no")
    with pytest.raises(TraceError, match="not complete"):
        len(tape)
    assert_nothing_left_on()


def test_an_op_that_fails_within_is_not_on_the_tape() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        try:
            x @ torch.ones(3)
        except RuntimeError:
            x = x * 2
        return x + 1

    tape = torchreel.trace(function, torch.eye(2))
    assert names(tape) == ["aten::ones", "aten::mul.Tensor", "aten::add.Tensor"]
    assert tape.replay(torch.eye(2)).tolist() == [[3.0, 1.0], [1.0, 3.0]]


def assert_nothing_left_on() -> None:
    """The methods are torch's own again, the next trace works, and ops after it are nobody's."""
    zero_grad, submit = torch.nn.Module.zero_grad.__code__.co_filename, threading.Thread._bootstrap_inner.__module__
    assert zero_grad.endswith("module.py") and submit == "threading"
    assert not torch._C._dispatch_tls_is_dispatch_key_included(torch._C._parse_dispatch_key("Fake"))
    x = torch.arange(3.0)
    x.numpy()[0] = 7
    assert x.tolist() == [7.0, 1.0, 2.0]
    tape = torchreel.trace(lambda y: y * 3, x)
    x.sin()
    assert names(tape) == ["aten::mul.Tensor"]
    assert tape.replay(torch.ones(3)).tolist() == [3.0, 3.0, 3.0]
    threading.Thread(target=x.cos).start()
    assert names(tape) == ["aten::mul.Tensor"]


def test_nothing_is_left_on() -> None:
    torchreel.trace(lambda x: x + 1, torch.ones(2))
    assert_nothing_left_on()


def test_the_public_name_stays_the_function() -> None:
    first = torchreel.trace
    first(lambda x: x, torch.ones(1))
    assert torchreel.trace is first and torchreel.tracing.__module__ == "torchreel.tape.capture.trace"


def surroundings() -> dict[str, Any]:
    return {
        "no_grad": torch.no_grad(),
        "inference_mode": torch.inference_mode(),
        "autocast": torch.autocast("cpu", dtype=torch.bfloat16),
        "enable_grad": torch.enable_grad(),
        "a default device": torch.device("meta"),
        "a dispatch mode": Listener(),
        "deterministic": torch.backends.mkldnn.flags(deterministic=True),
    }


class Listener(torch.utils._python_dispatch.TorchDispatchMode):
    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return op(*args, **(kwargs or {}))


@pytest.mark.parametrize("around", surroundings())
def test_a_replay_is_the_same_in_any_surroundings(around: str) -> None:
    weight = torch.nn.Parameter(torch.arange(12.0).view(3, 4))

    def step(x: torch.Tensor) -> torch.Tensor:
        weight.grad = None
        loss = (x @ weight.t() + torch.ones(3) + 0.1).softmax(-1).pow(2).sum()
        loss.backward()
        return loss.detach()

    x = torch.randn(2, 4)
    expected, gradient = step(x), weight.grad.clone()
    tape = torchreel.trace(step, x)
    weight.grad = None
    with surroundings()[around]:
        result = tape.replay(x)
    assert result.dtype == expected.dtype and torch.equal(result, expected)
    assert weight.grad is not None and torch.equal(weight.grad, gradient)


@pytest.mark.parametrize("around", ["no_grad", "inference_mode", "autocast"])
def test_a_trace_in_any_surroundings(around: str) -> None:
    model = torch.nn.Linear(4, 3)
    x = torch.randn(2, 4)
    with surroundings()[around]:
        expected = model(x)
        tape = torchreel.trace(model, x)
    result = tape.replay(x)
    assert result.dtype == expected.dtype and torch.equal(result, expected)


def test_a_result_does_not_change_with_the_next_replay() -> None:
    tape = torchreel.trace(lambda x: (x + 1, torch.tensor([1.0, 2.0])), torch.ones(2))
    first = tape.replay(torch.ones(2))
    first[1].fill_(9)
    second = tape.replay(torch.full((2,), 5.0))
    assert first[0].tolist() == [2.0, 2.0] and second[0].tolist() == [6.0, 6.0]
    assert second[1].tolist() == [1.0, 2.0]


def test_a_tensor_made_of_numbers_is_new_at_each_replay() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        total = torch.tensor(0.0)
        for value in x:
            total += value
        return total

    tape = torchreel.trace(function, torch.ones(3), hashes=True)
    first = tape.replay(torch.ones(3))
    assert tape.replay(torch.full((3,), 2.0)).item() == 6.0 and first.item() == 3.0


def test_an_array_of_numpy_is_new_at_each_replay() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        table = torch.from_numpy(numpy.arange(3, dtype=numpy.float32))
        table += x
        return table

    tape = torchreel.trace(lambda x: function(x) * 1, torch.ones(3), hashes=True)
    for _ in range(2):
        assert tape.replay(torch.ones(3)).tolist() == [1.0, 2.0, 3.0]


def test_an_input_that_is_returned_is_the_input() -> None:
    tape = torchreel.trace(lambda x: x.add_(1), torch.ones(2))
    x = torch.zeros(2)
    result = tape.replay(x)
    assert result.data_ptr() == x.data_ptr() and x.tolist() == [1.0, 1.0]


def test_replays_from_many_threads() -> None:
    tape = torchreel.trace(lambda x: (x * 2).sin().sum(), torch.ones(100))
    inputs = [torch.full((100,), float(place)) for place in range(8)]
    expected = [(x * 2).sin().sum() for x in inputs]
    found: dict[int, list[torch.Tensor]] = {}

    def work(place: int) -> None:
        found[place] = [tape.replay(inputs[place]) for _ in range(50)]

    workers = [threading.Thread(target=work, args=(place,)) for place in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for place in range(8):
        assert all(torch.equal(value, expected[place]) for value in found[place])


def test_an_empty_function() -> None:
    tape = torchreel.trace(lambda: None)
    assert len(tape) == 0 and tape.replay() is None


def test_a_state_with_another_shape() -> None:
    kept = torch.zeros(3)
    tape = torchreel.trace(lambda x: x + kept, torch.ones(1))
    kept.resize_(5)
    with pytest.raises(ReplayError, match=r"kept was float32 \[3\].* when the tape was made, and is float32 \[5\]"):
        tape.replay(torch.ones(1))


def test_replay_while_a_tape_is_made() -> None:
    """Its ops are ops of the other one."""
    inner = torchreel.trace(lambda x: x.sin() * 2, torch.ones(2))
    outer = torchreel.trace(lambda x: inner.replay(x) + 1, torch.ones(2))
    x = torch.tensor([0.5, 0.25])
    assert torch.equal(outer.replay(x), x.sin() * 2 + 1)
