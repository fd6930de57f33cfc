"""Programs that read and write Python's things in every way, for the tests of a followed trace."""

from __future__ import annotations

import collections
import itertools
import time
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from tests.tape.outcome import bits

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


# Gradients and data of tensors that no op reads


@program
def a_gradient_of_a_tensor_that_no_op_reads() -> Program:
    weight = torch.nn.Parameter(torch.ones(3))

    def function(x: torch.Tensor) -> torch.Tensor:
        weight.grad = x * 2
        return x + 1

    return Program(function, lambda: weight)


@program
def an_input_as_gradient() -> Program:
    weight = torch.nn.Parameter(torch.ones(3))

    def function(x: torch.Tensor) -> torch.Tensor:
        weight.grad = x
        return x * weight.detach()

    return Program(function, lambda: weight)


@program
def cleared_though_no_op_reads_it() -> Program:
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def function(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        return x + 1

    return Program(function, lambda: weight, lambda call: setattr(weight, "grad", torch.ones(3)))


@program
def data_that_the_call_makes() -> Program:
    layer = torch.nn.Linear(3, 1, bias=False)

    def function(x: torch.Tensor) -> torch.Tensor:
        layer.weight.data = x.view(1, 3) * 3
        return layer(x).detach()

    return Program(function, lambda: layer.weight)


@program
def signs_of_weights_for_a_while() -> Program:
    layer = torch.nn.Linear(3, 1, bias=False)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

    def function(x: torch.Tensor) -> torch.Tensor:
        saved = layer.weight.data.clone()
        layer.weight.data = saved.sign()
        optimizer.zero_grad()
        loss = layer(x).sum()
        loss.backward()
        layer.weight.data = saved
        optimizer.step()
        return loss.detach()

    return Program(function, lambda: layer.weight)


@program
def data_that_is_swapped() -> Program:
    a, b = torch.zeros(3), torch.ones(3)

    def function(x: torch.Tensor) -> torch.Tensor:
        a.data, b.data = b.data, a.data
        return x * a

    return Program(function, lambda: (a, b))


@program
def data_that_is_a_part_of_itself() -> Program:
    a = torch.arange(12.0)

    def function(x: torch.Tensor) -> torch.Tensor:
        a.data = a.data[1:]
        return x + a.sum()

    return Program(function, lambda: a)


@replayed
def data_that_is_changed_in_place() -> Program:
    weight = torch.nn.Parameter(torch.ones(3))

    def function(x: torch.Tensor) -> torch.Tensor:
        weight.grad = None
        (weight * x).sum().backward()
        weight.data -= 0.1 * weight.grad
        return x + 1

    return Program(function, lambda: weight)


# Ops of one's own


called: list[str] = []


@torch.library.custom_op("torchreel_tests::noted", mutates_args=())
def noted(x: torch.Tensor) -> torch.Tensor:
    called.append("called")
    return x * 2


@torch.library.custom_op("torchreel_tests::noisy", mutates_args=())
def noisy(x: torch.Tensor) -> torch.Tensor:
    return x + torch.rand(1)


@program
def an_op_that_draws() -> Program:
    return Program(lambda x: (noisy(x), torch.rand(1)), torch.get_rng_state)


@program
def a_size_that_depends_on_indices() -> Program:
    indices = torch.tensor([[0, 2]])

    def change(call: int) -> None:
        indices[0, 1] = call + 3

    return Program(lambda x: torch.sparse_coo_tensor(indices, x[:2]).to_dense(), change=change)


# What is what


@program
def set_from_the_end_and_appended_to() -> Program:
    log: list[Any] = [0]

    def function(x: torch.Tensor) -> torch.Tensor:
        log[-1] = x * 2
        log.append(x * 3)
        return x + 1

    return Program(function, lambda: log)


@replayed
def an_item_that_is_changed_in_place() -> Program:
    totals = [torch.zeros(3)]

    def function(x: torch.Tensor) -> torch.Tensor:
        totals[0] += x
        return x + 1

    return Program(function, lambda: totals)


@replayed
def a_variable_that_is_changed_in_place() -> Program:
    total = torch.zeros(3)

    def function(x: torch.Tensor) -> torch.Tensor:
        nonlocal total
        total += x
        return x + 1

    return Program(function, lambda: total)


@replayed
def a_log_that_is_emptied_outside() -> Program:
    log: list[Any] = []

    def function(x: torch.Tensor) -> torch.Tensor:
        log.append(x.sum())
        return x + 1

    return Program(function, lambda: log, lambda call: log.clear() if call == 1 else None)


@program
def methods_of_new_tensors() -> Program:
    held: dict[str, Any] = {}

    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        held["list"], held["at"] = y.tolist, [y].__getitem__
        return y

    return Program(function, lambda: (held["list"](), held["at"](0)))


@program
def a_node_of_autograd() -> Program:
    held: dict[str, Any] = {}
    weight = torch.nn.Parameter(torch.ones(3))

    def function(x: torch.Tensor) -> torch.Tensor:
        held["node"] = (weight * x).grad_fn
        return x + 1

    return Program(function, lambda: held["node"](torch.ones(3))[0])


@program
def one_entry_in_two_places() -> Program:
    held = types.SimpleNamespace(log=[], last=None)

    def function(x: torch.Tensor) -> torch.Tensor:
        held.last = {"loss": x.sum()}
        held.log.append(held.last)
        return x + 1

    return Program(function, lambda: (held.log[-1] is held.last, held.log))


@program
def left_and_returned() -> Program:
    held = types.SimpleNamespace(out=None)

    def function(x: torch.Tensor) -> Any:
        held.out = [x * 2]
        return held.out

    return Program(function, lambda: held.out)


@replayed
def aliases_of_weights() -> Program:
    layer, held = torch.nn.Linear(3, 1), types.SimpleNamespace(weight=None)

    def function(x: torch.Tensor) -> Any:
        held.weight = layer.weight.detach()
        state = layer.state_dict()
        kinds = [type(one).__name__ for one in (layer.weight.data, state["weight"])]
        return layer(x).detach(), state["bias"], kinds

    def state() -> Any:
        return type(held.weight).__name__, held.weight.requires_grad, held.weight is layer.weight

    return Program(function, state)


@replayed
def new_leaves() -> Program:
    held = types.SimpleNamespace(leaf=None)

    def function(x: torch.Tensor) -> torch.Tensor:
        held.leaf = (x * 3).detach().requires_grad_()
        return (x * 2).detach()

    return Program(function, lambda: (held.leaf, held.leaf.requires_grad))


@dataclass
class Metrics:
    loss: torch.Tensor


@replayed
def an_object_that_is_left() -> Program:
    held = types.SimpleNamespace(metrics=None)

    def function(x: torch.Tensor) -> torch.Tensor:
        held.metrics = Metrics(x.sum())
        return x + 1

    return Program(function, lambda: held.metrics.loss)


# What cannot be followed


@program
def the_time() -> Program:
    began = time.monotonic()
    return Program(lambda x: x * (time.monotonic() > began))
