"""Values that left for Python: a replay that finds others stops, and names the line."""

from __future__ import annotations

import io
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

import torchreel
from torchreel.errors import GuardError


def item_in_branch(x: torch.Tensor) -> torch.Tensor:
    if x.sum().item() > 10:  # here
        return x * 2
    return x - 1


def item_in_arithmetic(x: torch.Tensor) -> torch.Tensor:
    return x * x.max().item()  # here


def truth(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if (x > 2).any() else x  # here


def whole_number(x: torch.Tensor) -> torch.Tensor:
    return x.new_zeros(int(x[0]))  # here


def fraction(x: torch.Tensor) -> torch.Tensor:
    return x * float(x[0])  # here


def index(x: torch.Tensor) -> torch.Tensor:
    return x[x.argmax() :]  # here


def count_of_nonzero(x: torch.Tensor) -> torch.Tensor:
    return x * len(x.nonzero())  # here


def as_list(x: torch.Tensor) -> torch.Tensor:
    return x * sum(x.tolist())  # here


def as_numpy(x: torch.Tensor) -> torch.Tensor:
    return x * float(x.numpy().sum())  # here


def as_array(x: torch.Tensor) -> torch.Tensor:
    return x * float(numpy.asarray(x).max())  # here


def equal(x: torch.Tensor) -> torch.Tensor:
    return x if torch.equal(x, torch.tensor([1.0, 2.0, 0.0])) else x * 2  # here


def all_close(x: torch.Tensor) -> torch.Tensor:
    return x if torch.allclose(x, torch.tensor([1.0, 2.0, 0.0])) else x * 2  # here


def boolean_index(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0]  # here


def repeats(x: torch.Tensor) -> torch.Tensor:
    return torch.repeat_interleave(x, x.long())  # here


def text(x: torch.Tensor) -> torch.Tensor:
    return x * len(str(x))  # here


def iterated(x: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(())
    for value in x:
        if value > 1:  # here
            total = total + value
    return total


def pickled(x: torch.Tensor) -> torch.Tensor:
    return pickle.loads(pickle.dumps(x * 2)) + 1  # here


def saved(x: torch.Tensor) -> torch.Tensor:
    file = io.BytesIO()
    torch.save(x * 2, file)  # here
    file.seek(0)
    return torch.load(file) + 1


def by_dlpack(x: torch.Tensor) -> torch.Tensor:
    return torch.from_dlpack(x * 2) + 1  # here


def by_dlpack_to_numpy(x: torch.Tensor) -> torch.Tensor:
    return x * float(numpy.from_dlpack(x * 2).sum())  # here


def pickled_half(x: torch.Tensor) -> torch.Tensor:
    return pickle.loads(pickle.dumps(x.bfloat16())) + 1  # here


def tensor_of_tensors(x: torch.Tensor) -> torch.Tensor:
    return torch.tensor([x[0], x[1] * 2]) + 1  # here


READS: list[Any] = [
    item_in_branch,
    item_in_arithmetic,
    truth,
    whole_number,
    fraction,
    index,
    count_of_nonzero,
    as_list,
    as_numpy,
    as_array,
    equal,
    all_close,
    boolean_index,
    repeats,
    text,
    iterated,
    pickled,
    saved,
    by_dlpack,
    by_dlpack_to_numpy,
    pickled_half,
    tensor_of_tensors,
]
TRACED, OTHER = torch.tensor([1.0, 2.0, 0.0]), torch.tensor([4.0, 0.0, 0.0])


@pytest.mark.parametrize("read", READS)
def test_another_value_stops_the_replay(read: Callable[..., Any]) -> None:
    tape = torchreel.trace(read, TRACED.clone())
    assert torch.equal(tape.replay(TRACED.clone()), read(TRACED.clone()))

    with pytest.raises(GuardError) as caught:
        tape.replay(OTHER.clone())

    message = str(caught.value)
    assert f"in {read.__name__}: " in message and "# here" in message
    assert "was recorded" in message and "Trace it again" in message
    # ... and leaves a tape that works
    assert torch.equal(tape.replay(TRACED.clone()), read(TRACED.clone()))


def test_a_number_that_is_none() -> None:
    """NaN is NaN, though it is not equal to itself."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if math.isnan(x.sum().item()) else x

    nan = torch.tensor([math.nan, 1.0])
    tape = torchreel.trace(function, nan)
    assert torch.equal(tape.replay(torch.tensor([1.0, math.nan])).isnan(), torch.tensor([False, True]))
    with pytest.raises(GuardError, match=r"gave 3\. where nan was recorded"):
        tape.replay(torch.tensor([1.0, 2.0]))


def test_zeros_of_other_signs() -> None:
    tape = torchreel.trace(lambda x: x * math.copysign(2.0, x.item()), torch.tensor([0.0]))
    with pytest.raises(GuardError, match=r"where 0\. was recorded"):
        tape.replay(torch.tensor([-0.0]))


def test_the_state_is_guarded_as_inputs_are() -> None:
    limit = torch.tensor(2.0)
    tape = torchreel.trace(lambda x: x * limit.item(), torch.ones(2))
    limit.fill_(3.0)
    with pytest.raises(GuardError, match=r"gave 3\. where 2\. was recorded"):
        tape.replay(torch.ones(2))


def test_numbers_that_nobody_read_are_free() -> None:
    tape = torchreel.trace(lambda x: torch.where(x > 0, x, -x).sum(), TRACED.clone())
    assert tape.replay(OTHER.clone()).item() == 4.0


def test_a_write_through_numpy_after_a_read_is_seen() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = torch.zeros(3)
        array = y.numpy()
        y = y + x
        array[:] = 5.0
        return y + torch.from_numpy(array)

    tape = torchreel.trace(function, torch.ones(3))
    assert tape.replay(torch.full((3,), 2.0)).tolist() == [7.0, 7.0, 7.0]


def test_a_write_through_numpy_that_no_op_reads() -> None:
    """The array is the state's own memory."""
    kept = torch.zeros(3)

    def function(x: torch.Tensor) -> torch.Tensor:
        kept.numpy()[:] = 4.0
        return x + 1

    expected = function(torch.ones(3))
    tape = torchreel.trace(function, torch.ones(3))
    assert kept.tolist() == [4.0] * 3
    kept.zero_()
    try:
        result = tape.replay(torch.ones(3))
    except GuardError:
        return  # it saw that the memory is another now
    assert torch.equal(result, expected) and kept.tolist() == [4.0] * 3


def test_a_tape_without_optimizers_replays_while_steps_of_optimizers_are_recorded(tmp_path: Path) -> None:
    x = torch.ones(3)
    tape = torchreel.trace(lambda x: x.relu() + 1, x)
    with torchreel.record(tmp_path / "a.reel"):  # has a hook that counts the steps of optimizers
        assert torch.equal(tape.replay(-x), torch.ones(3))


def test_a_tape_with_an_optimizer_heeds_hooks_of_optimizers() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def step() -> None:
        weight.sum().backward()
        optimizer.step()

    step()
    tape = torchreel.trace(step)
    hook = register_optimizer_step_post_hook(lambda *_: None)
    try:
        with pytest.raises(GuardError, match="hook"):
            tape.replay()
    finally:
        hook.remove()
