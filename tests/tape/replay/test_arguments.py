"""Inputs of a replay that do not fit those of the trace are refused with a sentence, and those that do are taken."""

from __future__ import annotations

import dataclasses
from collections import namedtuple
from typing import Any

import pytest
import torch

import torchreel
from torchreel.errors import GuardError, ReplayError

Pair = namedtuple("Pair", ["left", "right"])


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    name: str


def total(x: torch.Tensor, *, y: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
    return (x + y).sum() * scale


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((torch.ones(3),), {"y": torch.ones(2), "scale": 1.5},
         r"Input x was float32 \[2\] on cpu when the tape was made, and is float32 \[3\]"),
        ((torch.ones(2),), {"y": torch.ones(2).double(), "scale": 1.5}, r"Input y was float32 .* and is float64"),
        ((torch.ones(2, device="meta"),), {"y": torch.ones(2), "scale": 1.5}, r"and is float32 \[2\] on meta now"),
        ((torch.ones(2),), {}, r"takes 2 tensors \(x, y\), and 1 were given"),
        ((torch.ones(2), torch.ones(2)), {"y": torch.ones(2)}, r"takes 2 tensors .* and 3 were given"),
        ((torch.ones(2),), {"y": torch.ones(2), "scale": 3.0}, r"Argument scale was 1\.5 .* and is 3\.0 now"),
        ((torch.ones(2),), {"y": torch.ones(2), "scale": "1.5"}, r"Argument scale was 1\.5 .* and is '1\.5' now"),
        ((torch.ones(2),), {"y": torch.ones(2)}, r"call replay\(\) as the function was called"),
        ((torch.ones(2).to_sparse(),), {"y": torch.ones(2), "scale": 1.5}, r"Input x was .*sparse"),
        (([torch.ones(2)],), {"y": torch.ones(2), "scale": 1.5}, r"as the function was called"),
        ((torch.ones(2), None), {"y": torch.ones(2), "scale": 1.5}, r"as the function was called"),
    ],
)  # fmt: skip
def test_inputs_that_do_not_fit(args: Any, kwargs: Any, message: str) -> None:
    tape = torchreel.trace(total, torch.ones(2), y=torch.ones(2), scale=1.5)
    with pytest.raises(ReplayError, match=message):
        tape.replay(*args, **kwargs)


def test_names_that_are_exchanged() -> None:
    tape = torchreel.trace(lambda *, a, b: a - b, a=torch.ones(2), b=torch.zeros(2))
    assert tape.replay(b=torch.zeros(2), a=torch.ones(2)).tolist() == [1.0, 1.0]
    with pytest.raises(ReplayError, match="as the function was called"):
        tape.replay(a=torch.ones(2), c=torch.zeros(2))


@pytest.mark.parametrize(
    ("traced", "other"),
    [
        ({"a": torch.ones(2), "b": [torch.ones(2), 3]}, {"a": torch.zeros(2), "b": [torch.ones(2), 3]}),
        (Pair(torch.ones(2), torch.ones(2)), Pair(torch.zeros(2), torch.ones(2))),
        (Batch(torch.ones(2), "one"), Batch(torch.zeros(2), "one")),
        ((torch.ones(2), (torch.ones(2), None)), (torch.zeros(2), (torch.ones(2), None))),
    ],
    ids=["dict", "namedtuple", "dataclass", "tuple"],
)
def test_structures(traced: Any, other: Any) -> None:
    def function(value: Any) -> Any:
        def first(part: Any) -> torch.Tensor:
            if isinstance(part, torch.Tensor):
                return part
            return first(
                vars(part)["x"]
                if isinstance(part, Batch)
                else next(iter(part.values() if isinstance(part, dict) else part))
            )

        return {"out": first(value) + 1, "given": value}

    tape = torchreel.trace(function, traced)
    result = tape.replay(other)
    assert result["out"].tolist() == [1.0, 1.0]
    assert type(result["given"]) is type(other)


def test_a_constant_in_an_object() -> None:
    tape = torchreel.trace(lambda batch: batch.x + len(batch.name), Batch(torch.ones(2), "one"))
    assert tape.replay(Batch(torch.zeros(2), "one")).tolist() == [3.0, 3.0]
    with pytest.raises(ReplayError, match=r"when the tape was made"):
        tape.replay(Batch(torch.zeros(2), "three"))


def test_other_strides_are_refused() -> None:
    """The function itself could not have this view of such an input."""
    tape = torchreel.trace(lambda x: x.view(-1) * 2, torch.ones(2, 3))
    with pytest.raises(GuardError, match=r"had strides \(3, 1\) and offset 0 .* and has \(1, 2\) and 0 now"):
        tape.replay(torch.arange(6.0).view(3, 2).t())


def test_strides_of_an_input_that_is_written() -> None:
    tape = torchreel.trace(lambda x: x.add_(1), torch.ones(2, 3))
    with pytest.raises(ReplayError, match=r"had strides \(3, 1\) .* and has \(1, 2\) and 0 now"):
        tape.replay(torch.ones(3, 2).t())


def test_an_input_at_another_offset() -> None:
    tape = torchreel.trace(lambda x: x.view(2, 2)[1] * 2, torch.ones(4))
    assert tape.replay(torch.arange(10.0)[3:7]).tolist() == [10.0, 12.0]


def test_an_input_that_lies_elsewhere_and_is_written() -> None:
    """Never to another place of the memory than the one that was given."""
    tape = torchreel.trace(lambda x: x[1:].mul_(2), torch.ones(4))
    base = torch.arange(10.0)
    tape.replay(base[3:7])
    assert base.tolist() == [0.0, 1.0, 2.0, 3.0, 8.0, 10.0, 12.0, 7.0, 8.0, 9.0]

    # Where its memory begins too late, there is no place that the views of the tape could count from.
    tape = torchreel.trace(lambda x: x[1:].mul_(2), base[3:7])
    with pytest.raises(ReplayError, match=r"offset 3 when the tape was made, and has \(1,\) and 0 now"):
        tape.replay(torch.ones(4))


def test_inputs_that_came_to_share_memory() -> None:
    tape = torchreel.trace(lambda x, y: x.add_(1) + y, torch.ones(2), torch.ones(2))
    x = torch.ones(2)
    with pytest.raises(ReplayError, match=r"did not share memory when the tape was made, and now they do"):
        tape.replay(x, x)


def test_inputs_that_no_longer_share_memory() -> None:
    x = torch.ones(2)
    tape = torchreel.trace(lambda x, y: x.add_(1) + y, x, x)
    with pytest.raises(ReplayError, match=r"shared memory when the tape was made, and now they do not"):
        tape.replay(torch.ones(2), torch.ones(2))
    x = torch.ones(2)
    assert tape.replay(x, x).tolist() == [4.0, 4.0]


def test_inputs_that_are_only_read_may_be_one() -> None:
    tape = torchreel.trace(lambda x, y: x + y, torch.ones(2), torch.ones(2))
    x = torch.full((2,), 3.0)
    assert tape.replay(x, x).tolist() == [6.0, 6.0]


def test_an_input_that_is_a_tensor_of_the_state() -> None:
    """The function closes over what it is also given."""
    kept = torch.ones(2)

    def function(x: torch.Tensor) -> torch.Tensor:
        kept.add_(1)
        return x * 2

    tape = torchreel.trace(function, torch.ones(2))
    assert tape.replay(kept).tolist() == [6.0, 6.0] and kept.tolist() == [3.0, 3.0]


def test_conjugated_input() -> None:
    tape = torchreel.trace(lambda x: x * 2, torch.ones(2, dtype=torch.complex64))
    x = torch.tensor([1 + 2j, 3 - 1j]).conj()
    assert torch.equal(tape.replay(x), x * 2)


def test_an_input_that_requires_grad() -> None:
    tape = torchreel.trace(lambda x: x * 2, torch.ones(2))
    assert tape.replay(torch.ones(2, requires_grad=True)).tolist() == [2.0, 2.0]
