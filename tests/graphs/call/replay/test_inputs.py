"""What goes in and comes out: aliases, views, inputs that are outputs, writes, nested structures, plain values."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

import torchreel
from tests.tape.outcome import bits
from torchreel import graphs

Pair = namedtuple("Pair", "first second")


def held_to_eager(function: Any, calls: list[tuple[Any, ...]], **options: Any) -> Any:
    """Calls both on the same values; `calls` is a list of lists of arguments, made anew for each."""
    graphed = torchreel.graphed(function, **options)
    for place, call in enumerate(calls):
        ours, theirs = copied(call), copied(call)
        got, wanted = graphed(*ours), function(*theirs)
        assert flat(got) == flat(wanted), f"call {place}"
        assert flat(ours) == flat(theirs), f"arguments of call {place}"
    return graphed


def copied(call: tuple[Any, ...]) -> list[Any]:
    return [one.detach().clone().requires_grad_(one.requires_grad) if torch.is_tensor(one) else one for one in call]


def flat(value: Any) -> Any:
    if torch.is_tensor(value):
        return bits(value), value.stride(), value.requires_grad
    if isinstance(value, dict):
        return type(value), [(key, flat(part)) for key, part in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [flat(part) for part in value]
    return type(value), repr(value)


def ones(*sizes: int) -> list[tuple[torch.Tensor, ...]]:
    return [(torch.randn(*sizes),) for _ in range(6)]


@dataclass
class Answer:
    value: torch.Tensor
    text: str


RESULTS: dict[str, Any] = {
    "none": lambda x: None,
    "nothing but numbers": lambda x: (3, "text", None, 2.5),
    "nested": lambda x: {"a": [x + 1, (x * 2, None)], 5: {"b": x.sum()}, "c": []},
    "named": lambda x: Pair(x + 1, x - 1),
    "ordered": lambda x: OrderedDict(b=x + 1, a=x * 2),
    "torch's own": lambda x: x.max(0),
    "twice the same": lambda x: (lambda y: (y, y))(x + 1),
    "empty": lambda x: (x[:0], x[:0] * 2, torch.empty(0, 3)),
    "zero-dimensional": lambda x: (x.sum(), x.mean()),
    "expanded": lambda x: x.sum().expand(3, 2),
    "turned": lambda x: (x * 2).t(),
    "int and bool": lambda x: (x > 0, x.argmax(), x.to(torch.int8)),
    "a constant": lambda x: (torch.ones(3), torch.arange(4), x + torch.eye(3)),
}


@pytest.mark.parametrize("name", RESULTS)
def test_results(name: str) -> None:
    graphed = held_to_eager(RESULTS[name], ones(3, 3))
    assert graphed.replays() > 0, graphs.status(graphed)


def test_a_class_of_the_user_s() -> None:
    function = torchreel.graphed(lambda x: Answer(x + 1, "yes"))
    answers = [function(torch.full((2,), float(i))) for i in range(6)]
    assert [answer.value.tolist() for answer in answers] == [[i + 1] * 2 for i in range(6)]
    assert {answer.text for answer in answers} == {"yes"}


def test_constants_that_are_handed_out_may_be_written() -> None:
    function = torchreel.graphed(lambda: (torch.zeros(3), torch.arange(3)))
    for _ in range(5):
        zeros, places = function()
        assert zeros.tolist() == [0, 0, 0] and places.tolist() == [0, 1, 2]
        zeros.add_(1)
        places.fill_(9)


def test_lists_and_dicts_that_are_handed_out_may_be_changed() -> None:
    function = torchreel.graphed(lambda x: {"all": [x + 1], "shape": [3]})
    for _ in range(5):
        out = function(torch.ones(3))
        assert len(out["all"]) == 1 and out["shape"] == [3]
        out["all"].append(1)
        out["shape"].append(4)


def test_output_is_an_input() -> None:
    function = torchreel.graphed(lambda x, y: (y, x, x + y))
    for _ in range(5):
        x, y = torch.randn(3), torch.randn(3)
        a, b, c = function(x, y)
        assert a is y and b is x and torch.equal(c, x + y)


def test_output_is_a_view_of_an_input() -> None:
    function = torchreel.graphed(lambda x: (x[1:], x.t(), x.view(-1)[::2]))
    for _ in range(5):
        x = torch.randn(3, 3)
        outputs = function(x)
        x.add_(1)
        for out, wanted in zip(outputs, (x[1:], x.t(), x.view(-1)[::2]), strict=True):
            assert torch.equal(out, wanted) and out.stride() == wanted.stride()
            assert out.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()


def test_output_is_a_view_of_an_input_that_is_itself_a_view() -> None:
    function = torchreel.graphed(lambda x: x[1:, 1:])
    for i in range(5):
        base = torch.randn(6, 6)
        assert torch.equal(function(base[i % 2 :, 2:]), base[i % 2 :, 2:][1:, 1:])


def test_outputs_that_share_memory() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x + 1
        return y, y[1:], y.view(-1)

    graphed = torchreel.graphed(function)
    for _ in range(5):
        whole, part, line = graphed(torch.zeros(3, 3))
        whole.fill_(5)
        assert part.eq(5).all() and line.eq(5).all()


@pytest.mark.parametrize("grad", [False, True])
def test_output_is_an_input_that_has_gradients(grad: bool) -> None:
    function = torchreel.graphed(lambda x, w: (x, x * w))
    x, w = torch.randn(3, requires_grad=grad), torch.randn(3, requires_grad=grad)
    for _ in range(5):
        a, b = function(x, w)
        assert a is x and x.is_leaf and torch.equal(b, x * w)


def test_output_is_a_parameter() -> None:
    layer = torch.nn.Linear(2, 2)
    function = torchreel.graphed(lambda x: (layer.weight, layer(x)))
    for _ in range(4):
        weight, _ = function(torch.ones(1, 2))
        assert weight is layer.weight and weight.is_leaf


def test_view_of_an_input_in_autograd() -> None:
    function = torchreel.graphed(lambda x: (x[1:], x * 2))
    for _ in range(5):
        x = torch.randn(3, 3, requires_grad=True)
        part, double = function(x)
        (part.sum() + 3 * double.sum()).backward()
        assert torch.equal(x.grad, torch.tensor([[6.0], [7.0], [7.0]]).expand(3, 3))


def test_input_that_was_made_of_another() -> None:
    """Each input's gradient is its own: what comes to it by way of the other is autograd's to add."""
    weight = torch.randn(3, requires_grad=True)
    function = torchreel.graphed(lambda x, y: (x * y * weight).sin())
    for _ in range(6):
        x = torch.randn(3, requires_grad=True)
        found = []
        for one in (function, lambda x, y: (x * y * weight).sin()):
            y = x * weight
            found.append(torch.autograd.grad(one(x, y).sum(), [x, weight]))
        assert all(map(torch.equal, *found))


def test_second_derivatives_through_calls_of_calls() -> None:
    """A gradient that is to be differentiated again is not a graph's: the function runs again, for one call only."""
    layer = torch.nn.Linear(3, 3).double()
    function = torchreel.graphed(lambda x: layer(x).tanh())
    for _ in range(5):
        x = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
        found = []
        for one in (function, function.__wrapped__):
            loss = one(one(x * 2)).pow(2).sum()
            (first,) = torch.autograd.grad(loss, x, create_graph=True)
            found.append((first, *torch.autograd.grad(first.sin().sum(), [x, layer.weight])))
        for ours, theirs in zip(*found, strict=True):
            assert torch.allclose(ours, theirs, rtol=1e-12, atol=1e-12)  # the order of sums is not the same


def strided_gradient(out: torch.Tensor, step: int) -> torch.Tensor:
    """A gradient that lies otherwise from call to call: it may not be the recorded backward's."""
    return torch.ones(out.shape) if step % 2 else torch.ones(1).expand(out.shape)


@pytest.mark.parametrize("written", ["input", "parameter"])
def test_another_backward_after_a_write_is_an_error(written: str) -> None:
    weight = torch.randn(3, requires_grad=True)
    graphed = torchreel.graphed(lambda x: (x * weight).sin())
    for _ in range(4):
        torch.autograd.grad(graphed(torch.randn(3)), weight, torch.ones(3))
    x = torch.randn(3)
    out = graphed(x)
    with torch.no_grad():
        (x if written == "input" else weight).add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(out, weight, torch.ones(3), create_graph=True)


def test_backward_of_a_function_that_wrote_its_input() -> None:
    weight = torch.randn(3, requires_grad=True)

    def function(x: torch.Tensor) -> torch.Tensor:
        out = (x.clone() * weight).sin()
        x.mul_(2)
        return out

    graphed = torchreel.graphed(function)
    for step in range(8):
        x = torch.randn(3)
        found = []
        for one in (graphed, function):
            out = one(x.clone())
            found.append(torch.autograd.grad(out, weight, strided_gradient(out, step))[0])
        assert torch.equal(*found), step


def test_backward_of_a_function_that_wrote_its_state() -> None:
    weight = torch.randn(3, requires_grad=True)

    def make() -> Any:
        state = torch.ones(3)

        def function(x: torch.Tensor) -> torch.Tensor:
            out = (x * weight * state.clone()).sin()
            state.mul_(1.5)
            return out

        return function

    ours, theirs = torchreel.graphed(make()), make()
    for step in range(8):
        x = torch.randn(3)
        found = []
        for one in (ours, theirs):
            out = one(x)
            found.append(torch.autograd.grad(out, weight, strided_gradient(out, step))[0])
        assert torch.equal(*found), step


def test_inputs_that_the_function_could_reach_and_does_not_read() -> None:
    class Trainer:
        def __init__(self) -> None:
            self.batches = [torch.randn(2) for _ in range(8)]
            self.weight = torch.randn(2)

        def step(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.weight

    trainer = Trainer()
    function = torchreel.graphed(trainer.step)
    for batch in trainer.batches:
        assert torch.equal(function(batch), batch * trainer.weight)
    assert function.replays() >= 4


def test_a_leaf_made_inside() -> None:
    function = torchreel.graphed(lambda: torch.zeros(3, requires_grad=True))
    for _ in range(4):
        out = function()
        assert out.is_leaf and out.requires_grad


def test_inputs_that_are_the_same_or_share_memory() -> None:
    function = torchreel.graphed(lambda x, y: x * 2 + y)
    base = torch.randn(8)
    pairs = [(base[:4], base[:4]), (base[:4], base[4:]), (base[:4], base[2:6]), (base[:4], torch.randn(4))]
    for x, y in [pair for pair in pairs for _ in range(4)] + pairs * 2:
        assert torch.equal(function(x, y), x * 2 + y)


def test_written_inputs_that_share_memory() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return y * 2

    graphed = torchreel.graphed(function)
    for first, second in [(slice(0, 4), slice(2, 6)), (slice(0, 4), slice(4, 8))] * 5:
        ours = torch.arange(8.0)
        theirs = ours.clone()
        assert torch.equal(graphed(ours[first], ours[second]), function(theirs[first], theirs[second]))
        assert torch.equal(ours, theirs)


def test_input_that_shares_memory_with_a_parameter() -> None:
    layer = torch.nn.Linear(3, 3, bias=False)
    function = torchreel.graphed(lambda x: layer(x))
    with torch.no_grad():
        for _ in range(4):
            assert torch.equal(function(layer.weight), layer(layer.weight))
        for _ in range(4):
            x = torch.randn(3, 3)
            assert torch.equal(function(x), layer(x))


def test_input_that_shares_memory_with_what_the_function_writes() -> None:
    state = torch.zeros(4)

    def function(x: torch.Tensor) -> torch.Tensor:
        state.add_(1)
        return x * 2

    graphed = torchreel.graphed(function)
    for step in range(8):
        x = state if step % 2 else torch.ones(4)
        assert torch.equal(graphed(x), x * 2)
        assert state.tolist() == [step + 1] * 4


@pytest.mark.parametrize("gaps", [False, True])
def test_write_back(gaps: bool) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        y[0] = x.sum()
        return x + 1

    graphed = torchreel.graphed(function)
    for step in range(6):
        whole, other = torch.randn(4, 6), torch.randn(4, 6)
        ours = [whole.clone()[:, ::2] if gaps else whole.clone(), other.clone().t()]
        theirs = [whole.clone()[:, ::2] if gaps else whole.clone(), other.clone().t()]
        assert torch.equal(graphed(*ours), function(*theirs)), step
        assert all(map(torch.equal, ours, theirs))
    assert graphed.replays() >= 4


def test_write_back_leaves_what_lies_between() -> None:
    graphed = torchreel.graphed(lambda x: x.add_(1).sum())
    for _ in range(5):
        base = torch.zeros(40)
        graphed(base[::10])
        assert base[::10].eq(1).all() and base.sum() == 4


def test_write_back_of_what_is_written_early() -> None:
    """The memory of an input is not used again before what was written to it is back."""

    def function(x: torch.Tensor) -> torch.Tensor:
        x[0].mul_(0.5)
        y = torch.arange(8.0)
        for _ in range(4):
            y = (y + 1).sin()
        return y

    held_to_eager(function, ones(8))


def test_write_back_counts_versions() -> None:
    graphed = torchreel.graphed(lambda x: x.add_(1))
    for _ in range(5):
        x = torch.zeros(3)
        before = x._version
        graphed(x)
        assert x._version > before


def test_skip_of_functions_that_write_their_inputs() -> None:
    graphed = held_to_eager(lambda x: x.add_(1) * 2, ones(3), mutation="skip")
    assert graphed.replays() == 0
    (skip,) = graphs.status(graphed).skips
    assert "writes to its inputs" in skip.reason and "mutation='skip'" in skip.reason


def test_written_input_becomes_differentiable() -> None:
    weight = torch.randn(3, requires_grad=True)

    def function(x: torch.Tensor) -> torch.Tensor:
        x.mul_(weight)
        return x.sum()

    graphed = torchreel.graphed(function)
    for _ in range(4):
        x = torch.ones(3)
        graphed(x)
        assert x.requires_grad
        (gradient,) = torch.autograd.grad(x.sum() * 2, weight)
        assert gradient.tolist() == [2, 2, 2]


def test_view_that_sees_more_than_its_input() -> None:
    graphed = torchreel.graphed(lambda x: x.as_strided((91,), (1,)) * 2)
    for _ in range(5):
        base = torch.randn(100)
        assert torch.equal(graphed(base[::10]), base[:91] * 2)


def test_running_statistics_among_the_arguments() -> None:
    def function(x: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.batch_norm(x, mean, variance, training=True)

    held_to_eager(function, [(torch.randn(4, 3), torch.randn(3), torch.rand(3)) for _ in range(5)])


VALUES = [1, True, 1.0, 0.0, -0.0, 0, False, "1", None, float("nan"), float("inf"), 2**70, (1, 2), (1.0, 2), 1 + 0j]


def test_plain_values_that_python_takes_for_equal() -> None:
    def function(x: torch.Tensor, value: Any) -> Any:
        if value is None or isinstance(value, str | tuple) or value == 2**70:
            return x + 1, repr(value)
        return x * value, repr(value)

    calls = [(torch.arange(3), value) for value in VALUES for _ in range(4)]
    held_to_eager(function, calls + calls[::4] * 2)


def test_numbers_of_tensors_that_python_takes_for_equal() -> None:
    for values in ([0.0, 0.0, 0.0, -0.0, 0.0, -0.0], [float("nan")] * 4 + [1.0] * 3 + [float("nan")]):
        graphed = torchreel.graphed(lambda x: torch.ones(1) * x.item())
        for value in values:
            assert bits(graphed(torch.tensor(value))) == bits(torch.ones(1) * value)


def test_arguments_by_place_name_and_default() -> None:
    def function(x: torch.Tensor, y: torch.Tensor | None = None, *more: Any, scale: float = 2.0, **named: Any) -> Any:
        total = x * scale if y is None else x * scale + y
        return total + sum(more) + sum(named.values())

    graphed = torchreel.graphed(function)
    x, y = torch.randn(3), torch.randn(3)
    for _ in range(4):
        for args, kwargs in [
            ((x,), {}), ((x, y), {}), ((x,), {"y": y}), ((x, None), {"scale": 3.0}), ((x, y, 1, 2), {}),
            ((x,), {"a": y, "b": 1}), ((x,), {"b": 1, "a": y}), ((), {"x": x}),
        ]:  # fmt: skip
            assert torch.equal(graphed(*args, **kwargs), function(*args, **kwargs))


def test_nested_arguments() -> None:
    def function(batch: Any) -> Any:
        return batch["a"][0] + batch["b"][1]["c"] * batch["d"]

    def batch() -> dict[str, Any]:
        return {"a": [torch.randn(3)], "b": (None, {"c": torch.randn(3)}), "d": 2}

    graphed = torchreel.graphed(function)
    for _ in range(6):
        one = batch()
        assert torch.equal(graphed(one), function(one))
    assert graphed.replays() == 4
    assert torch.equal(graphed({**one, "d": 3}), function({**one, "d": 3}))


@pytest.mark.parametrize("arguments", [(), (1, 2, 3), ("text",)])
def test_calls_that_the_function_does_not_take(arguments: tuple[Any, ...]) -> None:
    def function(x: torch.Tensor, y: int = 0) -> torch.Tensor:
        return x.sin() + y

    graphed = torchreel.graphed(function)
    for _ in range(3):
        graphed(torch.ones(2))
    for _ in range(4):
        with pytest.raises((TypeError, AttributeError)):
            graphed(*arguments)
    assert torch.equal(graphed(torch.ones(2)), torch.ones(2).sin())


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randn(3, 4, dtype=torch.complex64).conj(),
        lambda: torch.eye(3).to_sparse(),
        lambda: torch.nn.Parameter(torch.randn(3)),
        lambda: torch.randn(3, 4).t(),
        lambda: torch.randn(1).expand(5),
        lambda: torch.randn(0, 3),
        lambda: torch.tensor(2.0),
        lambda: torch.randn(9)[1:],
        lambda: torch.randn(3, dtype=torch.bfloat16),
        lambda: torch.quantize_per_tensor(torch.randn(3), 0.1, 0, torch.qint8).dequantize(),
    ],
)
def test_inputs_of_all_kinds(make: Any) -> None:
    torch.manual_seed(0)
    graphed = torchreel.graphed(lambda x: x * 2)
    for _ in range(5):
        x = make()
        got, wanted = graphed(x), x * 2
        assert got.layout == wanted.layout
        assert bits(got) == bits(wanted) and got.requires_grad == wanted.requires_grad


def test_many_kinds_in_turn() -> None:
    graphed = torchreel.graphed(lambda x: (x * 2, x.sum(0)))
    kinds = [
        torch.randn(3, 4), torch.randn(4, 3).t(), torch.randn(3, 4).double(), torch.arange(12).view(3, 4),
        torch.randn(6, 4)[::2], torch.randn(3, 4).requires_grad_(), torch.randn(3, 4) > 0, torch.randn(3, 8)[:, 4:],
    ]  # fmt: skip
    for step in range(40):
        x = kinds[(step * 5) % len(kinds)]
        for got, wanted in zip(graphed(x), (x * 2, x.sum(0)), strict=True):
            assert bits(got) == bits(wanted) and got.stride() == wanted.stride()
            assert got.requires_grad == wanted.requires_grad


def test_a_tensor_that_is_turned_in_place() -> None:
    """As recurrent modules do with batch_first."""
    modules = [torch.nn.GRU(8, 8, batch_first=True), torch.nn.LSTM(8, 8, num_layers=2, batch_first=True)]
    for module in modules:
        graphed = torchreel.graphed(module)
        with torch.no_grad():
            for _ in range(6):
                x = torch.randn(2, 5, 8)
                wanted, got = module(x)[0], graphed(x)[0]
                assert torch.equal(wanted, got) and wanted.stride() == got.stride()
        assert graphed.replays() == 4


def test_an_input_that_is_turned_in_place_is_left_to_eager() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        x.t_()
        return x * 2

    graphed = torchreel.graphed(function)
    for _ in range(6):
        ours = torch.randn(2, 3)
        theirs = ours.clone()
        assert torch.equal(graphed(ours), function(theirs)) and ours.shape == theirs.shape
    assert graphed.replays() == 0


class Sized(nn.Module):
    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum() + self.weight.flatten() * torch.arange(self.weight.numel())


@pytest.mark.parametrize(
    "change",
    [
        lambda weight, all_data: setattr(weight, "data", all_data[64:]),
        lambda weight, all_data: setattr(weight, "data", weight.data.reshape(8, 8).t()),
        lambda weight, all_data: setattr(weight, "data", weight.data[:32]),
        lambda weight, all_data: setattr(weight, "data", all_data[::2]),
        lambda weight, all_data: weight.data.flatten().resize_(8, 8).t_(),
        lambda weight, all_data: setattr(weight, "data", all_data[:64].reshape(2, 2, 2, 2, 2, 2).transpose(0, 5)),
    ],
)
def test_a_parameter_that_is_another_view_of_its_memory_is_recorded_anew(change: Callable[..., Any]) -> None:
    all_data = torch.randn(128)
    module = Sized(all_data[:64])
    fast = torchreel.graphed(module)
    x = torch.randn(3)
    with torch.no_grad():
        for _ in range(2):
            for _ in range(3):
                assert torch.equal(fast(x), module(x))
            change(module.weight, all_data)
        assert torch.equal(fast(x), module(x))


def test_a_tensor_of_many_dimensions_that_is_another_view_of_its_memory_is_recorded_anew() -> None:
    weight = torch.randn(2, 2, 2, 2, 2, 2)
    fast = torchreel.graphed(lambda x: x + weight.flatten())
    x = torch.randn(64)
    for _ in range(3):
        assert torch.equal(fast(x), x + weight.flatten())
    weight.transpose_(0, 5)
    assert torch.equal(fast(x), x + weight.flatten())
    weight.data = weight.data.contiguous().view(torch.int32).view(torch.float32).reshape(4, 16)
    assert torch.equal(fast(x), x + weight.flatten())
