"""The call of a traced function is followed: a replay does what a call would, or says why it does not.

Each program is called, traced, changed and replayed three times beside a twin that is only called.
"""

from __future__ import annotations

import collections
import gc
import itertools
import time
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

import torchreel
from tests.tape.outcome import bits
from torchreel.errors import ReplayError

Function = Callable[[torch.Tensor], Any]


@dataclass
class Program:
    function: Function
    state: Callable[[], Any] = lambda: None
    change: Callable[[int], None] = lambda _: None  # before each replay
    warm: int = 1  # calls before the trace


PROGRAMS: dict[str, Callable[[], Program]] = {}
REPLAYED: set[str] = set()  # all of whose replays must be done


def program(make: Callable[[], Program]) -> Callable[[], Program]:
    PROGRAMS[make.__name__] = make
    return make


def replayed(make: Callable[[], Program]) -> Callable[[], Program]:
    REPLAYED.add(make.__name__)
    return program(make)


def described(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return bits(value), None if value.grad is None or not value.is_leaf else bits(value.grad)
    if isinstance(value, dict):
        return {key: described(part) for key, part in value.items()}
    if isinstance(value, list | tuple | collections.deque):
        return [described(part) for part in value]
    return repr(value)


def inputs() -> Iterator[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    while True:
        yield torch.randn(3, generator=generator)


# Lists


@program
def a_number_in_a_dict_that_is_appended() -> Program:
    log: list[Any] = []

    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        log.append({"step": len(log), "loss": y.detach()})
        return y

    return Program(function, lambda: log)


@program
def a_number_in_a_tuple_that_is_appended() -> Program:
    log, settings = [], types.SimpleNamespace(rate=1.0)  # type: ignore[var-annotated]

    def function(x: torch.Tensor) -> torch.Tensor:
        log.append((settings.rate, x * 2))
        return x + 1

    return Program(function, lambda: log, lambda call: setattr(settings, "rate", float(call)))


@replayed
def a_constant_beside_a_tensor() -> Program:
    log: list[Any] = []

    def function(x: torch.Tensor) -> torch.Tensor:
        log.append({"rate": 0.1, "loss": x.sum()})
        return x + 1

    return Program(function, lambda: log)


@program
def inserted_at_the_beginning() -> Program:
    log: list[Any] = []

    def function(x: torch.Tensor) -> torch.Tensor:
        log.insert(0, x * 2)
        return x + 1

    return Program(function, lambda: log)


@program
def a_window_of_the_last() -> Program:
    log = [torch.zeros(3), torch.ones(3)]

    def function(x: torch.Tensor) -> torch.Tensor:
        log.append(x * 2)
        log.pop(0)
        return x + 1

    return Program(function, lambda: log)


@program
def appended_and_looked_at() -> Program:
    log: list[Any] = []

    def function(x: torch.Tensor) -> torch.Tensor:
        log.append(x * 2)
        return x + len(log)

    return Program(function, lambda: log)


@replayed
def appended_and_the_last_one_taken() -> Program:
    log: list[Any] = []

    def function(x: torch.Tensor) -> torch.Tensor:
        log.append(x * 2)
        return log[-1] + 1

    return Program(function, lambda: log)


@program
def extended() -> Program:
    log: list[Any] = []

    def function(x: torch.Tensor) -> torch.Tensor:
        nonlocal log
        log += [x * 2]
        return x + 1

    return Program(function, lambda: log)


@replayed
def an_item_of_a_list() -> Program:
    held = [torch.zeros(3), 1]

    def function(x: torch.Tensor) -> torch.Tensor:
        held[0] = x * 2
        return x + 1

    return Program(function, lambda: held)


@program
def an_item_of_a_list_that_is_read() -> Program:
    held = [torch.zeros(3)]

    def function(x: torch.Tensor) -> torch.Tensor:
        held[0] = held[0] + x
        return x + 1

    return Program(function, lambda: held)


# Modules


class Holder(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))
        self.register_buffer("mean", torch.zeros(3))


@program
def register_buffer_inside() -> Program:
    module = Holder()

    def function(x: torch.Tensor) -> torch.Tensor:
        module.register_buffer("last", x * 2)
        return x + 1

    return Program(function, lambda: dict(module.named_buffers()), warm=0)


@replayed
def register_buffer_that_is_there() -> Program:
    module = Holder()

    def function(x: torch.Tensor) -> torch.Tensor:
        module.register_buffer("mean", x * 2)
        return x + 1

    return Program(function, lambda: dict(module.named_buffers()))


@replayed
def an_attribute_of_a_module() -> Program:
    module = Holder()

    def function(x: torch.Tensor) -> torch.Tensor:
        module.features = x * module.weight
        return x + 1

    return Program(function, lambda: module.__dict__.get("features"))


@program
def a_count_in_a_module() -> Program:
    module = Holder()
    module.calls = 0  # type: ignore[assignment]

    def function(x: torch.Tensor) -> torch.Tensor:
        module.calls += 1  # type: ignore[operator]
        return x * module.calls

    return Program(function, lambda: module.calls)


# Memory


@program
def data_of_a_tensor_from_outside() -> Program:
    weight, others = torch.nn.Parameter(torch.ones(3)), [torch.full((3,), float(i)) for i in range(8)]
    place = iter(range(8))

    def function(x: torch.Tensor) -> torch.Tensor:
        weight.data = others[next(place)]
        return x + 1

    return Program(function, lambda: weight)


@program
def data_of_one_tensor_from_outside() -> Program:
    weight, other = torch.nn.Parameter(torch.ones(3)), torch.full((3,), 5.0)

    def function(x: torch.Tensor) -> torch.Tensor:
        weight.data = other
        return x + 1

    return Program(function, lambda: weight, lambda call: setattr(weight, "data", torch.full((3,), float(call))))


@program
def swapped_tensors() -> Program:
    a, b = torch.zeros(3), torch.ones(3)

    def function(x: torch.Tensor) -> torch.Tensor:
        torch.utils.swap_tensors(a, b)
        return x + 1

    return Program(function, lambda: (a, b))


@program
def a_leaf_that_is_left_with_its_gradient() -> Program:
    held = types.SimpleNamespace(leaf=None)

    def function(x: torch.Tensor) -> torch.Tensor:
        leaf = (x * 2).detach().requires_grad_()
        (leaf * leaf).sum().backward()
        held.leaf = leaf
        return x + 1

    return Program(function, lambda: held.leaf)


@program
def a_backward_of_a_graph_from_outside() -> Program:
    weight = torch.nn.Parameter(torch.ones(3))
    made = [(weight * (i + 1)).sum() for i in range(8)]
    held = {"loss": made[0]}

    def function(x: torch.Tensor) -> torch.Tensor:
        weight.grad = None
        (held["loss"] * x.sum()).backward(retain_graph=True)
        return x + 1

    return Program(function, lambda: weight, lambda call: held.update(loss=made[call + 1]))


@program
def one_graph_from_outside() -> Program:
    weight = torch.nn.Parameter(torch.ones(3))
    loss = (weight * 2).sum()

    def function(x: torch.Tensor) -> torch.Tensor:
        weight.grad = None
        loss.backward(retain_graph=True)
        return x + 1

    return Program(function, lambda: weight)


@program
def a_scaler_in_its_first_call() -> Program:
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2)

    def function(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = (weight * x).sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return Program(function, lambda: (weight, scaler.get_scale()), warm=0)


# What Python reads


class Rate:
    def __init__(self) -> None:
        self.value = 1.0


@program
def attributes_of_objects_in_an_iterator() -> Program:
    rates = [Rate() for _ in range(8)]
    source = itertools.cycle(rates)

    def change(call: int) -> None:
        for rate in rates:
            rate.value = float(call + 2)

    return Program(lambda x: x * next(source).value, change=change)


@program
def attributes_of_objects_in_an_iterator_of_one_call() -> Program:
    rates = [Rate()]
    return Program(
        lambda x: x * next(filter(None, iter(rates))).value, change=lambda c: setattr(rates[0], "value", c + 2.0)
    )


@program
def an_attribute_by_a_name_that_is_made() -> Program:
    rate = Rate()
    names = {"which": "".join(reversed("eulav"))}
    return Program(
        lambda x: x * rate.__getattribute__(names["which"]), change=lambda c: setattr(rate, "value", c + 2.0)
    )


@program
def an_object_by_way_of_another() -> Program:
    rate = Rate()
    registry = {"rate": rate}
    return Program(
        lambda x: x * next(iter(registry.values())).value, change=lambda call: setattr(rate, "value", call + 2.0)
    )


@program
def whether_there_was_a_gradient() -> Program:
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def function(x: torch.Tensor) -> torch.Tensor:
        scale = 2.0 if weight.grad is None else 3.0
        optimizer.zero_grad()
        (weight * x * scale).sum().backward()
        optimizer.step()
        return x * scale

    return Program(function, lambda: weight, lambda call: setattr(weight, "grad", None) if call == 1 else None)


@program
def groups_of_adam_with_other_betas() -> Program:
    weights = [torch.nn.Parameter(torch.ones(3)) for _ in range(2)]
    optimizer = torch.optim.Adam(
        [{"params": weights[:1], "betas": (0.9, 0.99)}, {"params": weights[1:], "betas": (0.99, 0.9)}], lr=0.1
    )

    def function(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = sum((weight * x).square().sum() for weight in weights)
        loss.backward()
        optimizer.step()
        return loss.detach()

    def change(call: int) -> None:
        for weight in weights:
            optimizer.state[weight]["step"].fill_(call)

    return Program(function, lambda: weights, change)


@replayed
def groups_of_adam_whose_numbers_coincide() -> Program:
    """At the traced count: one half to the fourth is one quarter squared."""
    weights = [torch.nn.Parameter(torch.ones(3)) for _ in range(2)]
    groups = [{"params": weights[:1], "betas": (0.5, 0.5)}, {"params": weights[1:], "betas": (0.25, 0.25)}]
    optimizer = torch.optim.Adam(groups, lr=0.1, foreach=False)

    def function(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = sum((weight * x).square().sum() for weight in weights)
        loss.backward()
        optimizer.step()
        return loss.detach()

    def first(x: torch.Tensor) -> torch.Tensor:
        loss = function(x)
        optimizer.state[weights[0]]["step"].fill_(3)
        return loss

    first(torch.ones(3))
    return Program(function, lambda: weights, warm=0)


# What cannot be followed


@program
def the_time() -> Program:
    began = time.monotonic()
    return Program(lambda x: x * (time.monotonic() > began))


def run(make: Callable[[], Program], traced: bool) -> Iterator[Any]:
    torch.manual_seed(0)
    made, given = make(), inputs()
    for _ in range(made.warm):
        made.function(next(given))
    if traced:
        tape = torchreel.trace(made.function, next(given))
    else:
        made.function(next(given))
    for call in range(3):
        made.change(call)
        yield described(tape.replay(next(given)) if traced else made.function(next(given))), described(made.state())


@pytest.mark.filterwarnings("ignore:Nobody can tell")
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_replay_is_a_call_or_says_why_not(name: str) -> None:
    called, replays = run(PROGRAMS[name], False), run(PROGRAMS[name], True)
    for call in range(3):
        expected = next(called)
        try:
            found = next(replays)
        except ReplayError:  # a GuardError is one
            assert name not in REPLAYED
            return
        assert found == expected, f"replay {call}"


def test_what_is_not_known_is_said_once() -> None:
    tape = torchreel.trace(the_time().function, torch.ones(3))
    with pytest.warns(
        UserWarning, match=r"Nobody can tell .* calls time.monotonic\(\), which is not known .*trust=True"
    ):
        tape.replay(torch.ones(3))
    tape.replay(torch.ones(3))


@pytest.mark.filterwarnings("error")
def test_trust() -> None:
    tape = torchreel.trace(the_time().function, torch.ones(3), trust=True)
    assert bits(tape.replay(torch.full((3,), 2.0))) == bits(torch.full((3,), 2.0))


def test_the_sentence_names_what_changed() -> None:
    rate = Rate()
    tape = torchreel.trace(lambda x: x * [rate][0].value, torch.ones(3))
    rate.value = 7.0
    with pytest.raises(ReplayError, match=r"rate.value was 1.0 .* is 7.0"):
        tape.replay(torch.ones(3))


@dataclass
class Collected:
    phases: list[str] = field(default_factory=list)

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        self.phases.append(phase)
        time.perf_counter()


def test_the_collector_is_no_part_of_a_call() -> None:
    """Its callbacks run whenever there is much to collect, in whichever function that is."""
    seen = Collected()

    def function(x: torch.Tensor) -> torch.Tensor:
        made = [[number] for number in range(5000)]  # which calls for a collection
        return x * len(made)

    gc.callbacks.append(seen)
    try:
        fast = torchreel.graphed(function)
        for _ in range(4):
            fast(torch.ones(3))
        tape = torchreel.trace(function, torch.ones(3))
    finally:
        gc.callbacks.remove(seen)
    assert seen.phases  # in the calls that are not followed
    assert torchreel.graphs.status(fast).replays == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tape.replay(torch.ones(3))
    assert gc.isenabled()
