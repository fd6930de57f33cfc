"""What Python holds and changes between calls: modules, optimizers, closures, modes: all of it is seen."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

import torchreel
from tests.tape.outcome import bits
from torchreel import graphs
from torchreel.errors import VerifyError


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 6)
        self.norm = torch.nn.BatchNorm1d(6)
        self.drop = torch.nn.Dropout(0.5)
        self.last = torch.nn.Linear(6, 2)
        self.scale = 1.0
        self.names = ["a", "b"]
        self.table = torch.ones(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.drop(self.norm(self.first(x)).relu())
        return self.last(x) * self.scale * len(self.names) + self.table


def twins() -> tuple[Net, Net]:
    pair = []
    for _ in range(2):
        torch.manual_seed(0)
        pair.append(Net())
    return pair[0], pair[1]


def called_alike(ours: Net, theirs: Net, function: Any, times: int = 4) -> None:
    for _ in range(times):
        x = torch.randn(3, 4, dtype=ours.first.weight.dtype)
        torch.manual_seed(5)
        got = function(x)
        torch.manual_seed(5)
        wanted = theirs(x)
        assert bits(got) == bits(wanted) and got.requires_grad == wanted.requires_grad
        assert all(bits(a) == bits(b) for a, b in zip(ours.buffers(), theirs.buffers(), strict=True))
        if got.requires_grad:
            for model, out in ((ours, got), (theirs, wanted)):
                model.zero_grad()
                out.sum().backward()
            for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
                assert bits(a.grad) == bits(b.grad)


def other_weights(model: Net) -> dict[str, torch.Tensor]:
    return {name: value * 2 + 1 for name, value in model.state_dict().items()}


def written(model: Net) -> None:
    with torch.no_grad():
        model.first.weight.mul_(0.5)
        model.last.bias.copy_(torch.tensor([3.0, 4.0]))


def new_parameter(model: Net) -> None:
    model.last.weight = torch.nn.Parameter(torch.full((2, 6), 0.25))


def new_data(model: Net) -> None:
    model.first.weight.data = model.first.weight.data * 3


CHANGES: dict[str, Callable[[Net], Any]] = {
    "eval": lambda model: model.eval(),
    "train": lambda model: model.train(),
    "one part eval": lambda model: model.drop.eval(),
    "probability": lambda model: setattr(model.drop, "p", 0.1),
    "momentum": lambda model: setattr(model.norm, "momentum", 0.3),
    "number": lambda model: setattr(model, "scale", 3.0),
    "list grown": lambda model: model.names.append("c"),
    "tensor replaced": lambda model: setattr(model, "table", torch.tensor([5.0, 6.0])),
    "tensor written": lambda model: model.table.add_(1),
    "weights written": written,
    "weight.data": new_data,
    "new parameter": new_parameter,
    "state dict": lambda model: model.load_state_dict(other_weights(model)),
    "state dict assigned": lambda model: model.load_state_dict(other_weights(model), assign=True),
    "double": lambda model: model.double(),
    "frozen": lambda model: model.requires_grad_(False),
    "partly frozen": lambda model: model.first.requires_grad_(False),
    "module replaced": lambda model: setattr(model, "drop", torch.nn.Identity()),
    "forward hook": lambda model: model.norm.register_forward_hook(lambda m, args, out: out * 2),
    "forward pre-hook": lambda model: model.last.register_forward_pre_hook(lambda m, args: (args[0] + 1,)),
    "gradient hook": lambda model: model.last.weight.register_hook(lambda gradient: gradient * 2),
    "backward hook": lambda model: model.last.register_full_backward_hook(lambda m, gi, go: (gi[0] * 2,)),
    "forward replaced": lambda model: setattr(model.norm, "forward", lambda x: x - 1),
}


@pytest.mark.parametrize("name", CHANGES)
def test_change_of_a_module_is_seen(name: str) -> None:
    ours, theirs = twins()
    if name == "train":
        ours.eval()
        theirs.eval()
    function = torchreel.graphed(ours)
    called_alike(ours, theirs, function)
    assert function.replays() > 0
    for model in (ours, theirs):
        CHANGES[name](model)
    called_alike(ours, theirs, function, 6)


def test_changes_back_and_forth() -> None:
    ours, theirs = twins()
    function = torchreel.graphed(ours)
    for step in range(24):
        for model in (ours, theirs):
            model.train(step % 4 < 2)
            model.scale = float(step // 8)
        with torch.set_grad_enabled(step % 3 > 0):
            called_alike(ours, theirs, function, 1)


MODES: dict[str, Callable[[], Any]] = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "enable_grad": torch.enable_grad,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False),
    "deterministic": lambda: _Flag(
        torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, True
    ),
    "default dtype": lambda: _Flag(torch.get_default_dtype, torch.set_default_dtype, torch.float64),
    "threads": lambda: _Flag(torch.get_num_threads, torch.set_num_threads, 2),
    "mkldnn off": lambda: torch.backends.mkldnn.flags(enabled=False),
}


class _Flag:
    def __init__(self, get: Any, put: Any, value: Any) -> None:
        self._get, self._put, self._value = get, put, value

    def __enter__(self) -> None:
        self._before = self._get()
        self._put(self._value)

    def __exit__(self, *_: object) -> None:
        self._put(self._before)


@pytest.mark.parametrize("name", MODES)
def test_modes_switched_between_calls(name: str) -> None:
    torch.manual_seed(0)
    layer = torch.nn.Linear(4, 3)

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = layer(x).softmax(-1)
        return y + torch.tensor(0.5), torch.ones(2) * y.sum().detach()

    graphed = torchreel.graphed(function)
    for step in range(16):
        x = torch.randn(2, 4)
        with MODES[name]() if step % 3 != 1 else torch.enable_grad():
            got, wanted = graphed(x), function(x)
            for a, b in zip(got, wanted, strict=True):
                assert bits(a) == bits(b), step
                assert (a.requires_grad, a.is_inference()) == (b.requires_grad, b.is_inference()), step
    assert graphed.replays() > 5


def test_a_learning_rate_scheduled_outside() -> None:
    def run(wrap: Any) -> list[Any]:
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)

        def step(x: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(x).pow(2).mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        function = wrap(step)
        found = []
        for place in range(15):
            found.append((bits(function(torch.randn(3, 4))), bits(model.weight), bits(model.bias)))
            scheduler.step()
            if place == 10:
                optimizer.param_groups[0]["weight_decay"] = 0.3
        return found

    assert run(torchreel.graphed) == run(lambda one: one)


FACTOR = 2.0
SETTINGS = {"factor": 2.0, "inner": [1.0]}


def test_closed_over_numbers_globals_and_defaults() -> None:
    global FACTOR
    count, kept = 1, {"bias": 0.5}

    def function(x: torch.Tensor, power: int = 2) -> torch.Tensor:
        return (x * FACTOR * SETTINGS["factor"] + count + kept["bias"] + SETTINGS["inner"][0]) ** power

    graphed = torchreel.graphed(function)
    x = torch.randn(3)
    before = FACTOR, SETTINGS["factor"]
    try:
        for step in range(40):
            if step % 5 == 4:
                which = step // 5 % 6
                FACTOR += which == 0
                SETTINGS["factor"] += which == 1
                count += which == 2
                kept["bias"] += which == 3
                SETTINGS["inner"][0] += which == 4
                if which == 5:
                    function.__defaults__ = (3,)
            assert torch.equal(graphed(x), function(x)), step
    finally:
        FACTOR, SETTINGS["factor"] = before
    assert graphed.replays() > 10


def test_state_that_the_function_keeps_in_an_attribute() -> None:
    class Smooth(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mean = torch.zeros(3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.mean = self.mean * 0.5 + x
            return self.mean * 2

    ours, theirs = Smooth(), Smooth()
    function = torchreel.graphed(ours)
    for _ in range(8):
        x = torch.randn(3)
        assert torch.equal(function(x), theirs(x))
        assert torch.equal(ours.mean, theirs.mean)


def test_a_number_that_the_function_counts() -> None:
    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.count = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count += 1
            return x * self.count

    ours, theirs = Counter(), Counter()
    function = torchreel.graphed(ours)
    for _ in range(12):
        assert torch.equal(function(torch.ones(3)), theirs(torch.ones(3)))


def test_a_module_freed_with_its_graphs() -> None:
    layer = torch.nn.Linear(2, 2)
    function = torchreel.graphed(lambda x: layer(x))
    for _ in range(4):
        wanted = function(torch.ones(1, 2)).detach().clone()
    weight, bias = layer.weight.detach(), layer.bias.detach()
    del layer
    layer = torch.nn.Linear(2, 2)  # the cell that the function reads
    for _ in range(4):
        assert torch.equal(function(torch.ones(1, 2)), layer(torch.ones(1, 2)))
    assert torch.equal(functional.linear(torch.ones(1, 2), weight, bias), wanted)


def test_branch_on_a_value() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum() > 0 else x.sin() - 1

    graphed = torchreel.graphed(function)
    for step in range(40):
        x = torch.randn(3)
        assert torch.equal(graphed(x), function(x)), step
    assert graphed.replays() > 30


def test_branch_on_a_value_after_a_write() -> None:
    """A guard that fails undoes what was written before it, and what was drawn."""

    def run(wrap: Any) -> list[Any]:
        torch.manual_seed(0)
        state, steps = torch.zeros(3), torch.zeros(())

        def function(x: torch.Tensor) -> torch.Tensor:
            state.add_(x + torch.rand(3))
            steps.add_(1)
            if state.sum() > 4:
                state.zero_()
            return state * 2

        made = wrap(function)
        return [(bits(made(torch.rand(3))), bits(state), bits(steps), bits(torch.get_rng_state())) for _ in range(40)]

    assert run(torchreel.graphed) == run(lambda one: one)


def test_a_number_at_each_call_is_given_up_with_its_reason() -> None:
    graphed = torchreel.graphed(lambda x: x * x.sum().item())
    for step in range(40):
        x = torch.full((3,), float(step))
        assert torch.equal(graphed(x), x * x.sum().item())
    (skip,) = graphs.status(graphed).skips
    assert "number" in skip.reason and "test_python_state.py" in skip.reason
    assert len(graphs.status(graphed).history) < 40


def test_a_number_that_is_returned() -> None:
    graphed = torchreel.graphed(lambda x: (x * 2, x.sum().item()))
    for step in range(30):
        x = torch.full((2,), float(step % 20))
        double, number = graphed(x)
        assert torch.equal(double, x * 2) and number == x.sum().item()


READS: dict[str, Callable[[torch.Tensor], Any]] = {
    "tolist": lambda x: x * sum(x.tolist()),
    "numpy": lambda x: x * float(x.numpy().sum()),
    "numpy made": lambda x: torch.from_numpy(x.numpy() * 2) + 1,
    "iteration": lambda x: sum(part for part in x if part > 0) + x,
    "bool": lambda x: x if bool((x > 1).any()) else -x,
    "index": lambda x: x[int(x.argmax()) :],
    "mask": lambda x: x[x > 0],
    "nonzero": lambda x: x.nonzero(),
    "unique": lambda x: torch.unique(x, return_counts=True),
    "repr": lambda x: len(repr(x)) * x,
    "format": lambda x: float(f"{x[0]:.3f}") * x,
}


@pytest.mark.parametrize("name", READS)
def test_values_that_python_reads(name: str) -> None:
    function = READS[name]
    graphed = torchreel.graphed(function)
    torch.manual_seed(0)
    for step in range(30):
        x = torch.randn(4).round(decimals=step % 3)
        got, wanted = graphed(x), function(x)
        for a, b in zip(*(one if isinstance(one, tuple) else (one,) for one in (got, wanted)), strict=True):
            assert bits(a) == bits(b), step


def test_verify_finds_what_is_trusted_and_wrong() -> None:
    os.environ["TORCHREEL_TEST_FACTOR"] = "2"
    graphed = torchreel.graphed(lambda x: (x + 1) * float(os.environ["TORCHREEL_TEST_FACTOR"]), verify=4, trust=True)
    try:
        for _ in range(8):
            assert graphed(torch.ones(2)).tolist() == [4, 4]
        os.environ["TORCHREEL_TEST_FACTOR"] = "3"
        with pytest.raises(VerifyError) as caught:
            for _ in range(8):
                graphed(torch.ones(2))
    finally:
        del os.environ["TORCHREEL_TEST_FACTOR"]
    message = str(caught.value)
    assert "aten::mul" in message and "test_python_state.py" in message and "os.environ" in message


def test_verify_leaves_a_training_run_as_it_is() -> None:
    def run(wrap: Any) -> list[Any]:
        ours, _ = twins()
        optimizer = torch.optim.Adam(ours.parameters(), lr=0.01)

        def step(x: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = ours(x).pow(2).mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        function = wrap(step)
        losses = [bits(function(torch.randn(3, 4))) for _ in range(12)]
        return [*losses, *(bits(value) for value in ours.state_dict().values()), bits(torch.get_rng_state())]

    assert run(lambda one: torchreel.graphed(one, verify=3)) == run(lambda one: one)


def test_errors_of_the_function_are_its_own() -> None:
    def function(x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        return x[place] * 2

    graphed = torchreel.graphed(function)
    x = torch.randn(4)
    for _ in range(4):
        assert torch.equal(graphed(x, torch.tensor([0, 3])), x[[0, 3]] * 2)
    for _ in range(3):
        with pytest.raises(IndexError):
            graphed(x, torch.tensor([0, 9]))
        assert torch.equal(graphed(x, torch.tensor([1, 2])), x[[1, 2]] * 2)
    with pytest.raises(ValueError, match="mine"):
        _raising = torchreel.graphed(_raises)
        for _ in range(3):
            _raising(torch.ones(1))


def _raises(x: torch.Tensor) -> torch.Tensor:
    raise ValueError("mine")


def test_a_method() -> None:
    class Scaled:
        def __init__(self, factor: float) -> None:
            self.factor = factor

        @torchreel.graphed
        def times(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.factor

    two, three = Scaled(2.0), Scaled(3.0)
    for _ in range(5):
        assert two.times(torch.ones(2)).tolist() == [2, 2] and three.times(torch.ones(2)).tolist() == [3, 3]
    two.factor = 5.0
    assert two.times(torch.ones(2)).tolist() == [5, 5]


def test_a_copy() -> None:
    function = torchreel.graphed(torch.nn.Linear(2, 2))
    for _ in range(3):
        function(torch.ones(1, 2))
    other = copy.deepcopy(function)
    with torch.no_grad():
        other.weight.zero_()
    for _ in range(4):
        assert torch.equal(other(torch.ones(1, 2))[0], other.bias)
        assert not torch.equal(function(torch.ones(1, 2))[0], function.bias)


def test_a_generator_among_the_arguments() -> None:
    function = torchreel.graphed(lambda x, generator: x + torch.rand(3, generator=generator))
    for seed in range(6):
        ours, theirs = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(seed)
        assert torch.equal(function(torch.zeros(3), ours), torch.rand(3, generator=theirs))


def test_a_process_that_forks() -> None:
    function = torchreel.graphed(lambda x: x.sin() * 2)
    for _ in range(4):
        function(torch.ones(3))
    child = os.fork()
    if child == 0:
        inputs = [torch.full((3,), float(i)) for i in range(10)]
        os._exit(0 if all(torch.equal(function(x), x.sin() * 2) for x in inputs) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert torch.equal(function(torch.ones(3)), torch.ones(3).sin() * 2)


def test_what_others_do_around_a_call() -> None:
    """Transforms, modes and hooks see the ops, as if there was no graph."""
    function = torchreel.graphed(lambda x: (x @ x.T).sin().sum())
    weight = torch.randn(3, requires_grad=True)
    scaled = torchreel.graphed(lambda x: (x * weight).exp())
    x = torch.randn(4, 3)
    for _ in range(4):
        function(x)
        scaled(x).sum().backward()
    batch = torch.randn(2, 4, 3)
    plain = function.__wrapped__
    assert bits(torch.func.vmap(function)(batch)) == bits(torch.func.vmap(plain)(batch))
    assert bits(torch.func.grad(function)(x)) == bits(torch.func.grad(plain)(x))
    with FlopCounterMode(display=False) as flops:
        function(x)
    assert flops.get_total_flops() == 2 * 4 * 4 * 3
    assert function(x.to("meta")).is_meta
    packed: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda one: packed.append(one) or one, lambda one: one):
        scaled(x).sum().backward()
    assert packed


def test_graphed_within_graphed_and_within_a_trace() -> None:
    inner = torchreel.graphed(lambda x: x.sin() * 2)
    outer = torchreel.graphed(lambda x: inner(x) + inner(x * 2))
    for _ in range(6):
        x = torch.randn(3)
        assert torch.equal(outer(x), x.sin() * 2 + (x * 2).sin() * 2)
    tape = torchreel.trace(outer, torch.ones(3))
    x = torch.randn(3)
    assert torch.equal(tape.replay(x), outer(x))


def test_a_number_of_many_values_has_a_bounded_number_of_recordings() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * x[0].item()

    graphed = torchreel.graphed(function)
    for step in range(400):
        x = torch.full((3,), float(step // 4 % 20))  # each value is seen often enough to be worth a recording
        assert torch.equal(graphed(x), function(x))
    assert len(graphed.recordings()) <= 8
