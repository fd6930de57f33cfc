"""Programs that change between a trace and a replay, in every way that somebody who wants to break a tape thinks of.

Each is made anew, called once, traced at its second call, changed, and called a third time: by the function itself, or
by the tape. A tape gives what the function gives, or refuses.
"""

from __future__ import annotations

import argparse
import array
import collections
import contextvars
import dataclasses
import enum
import functools
import itertools
import random
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint, checkpoint_sequential


@dataclass
class Change:
    """A function, its arguments at each call, what changes before the last one, and what it leaves behind."""

    function: Callable[..., Any]
    arguments: Callable[[int], tuple[Any, ...]]
    change: Callable[[], object] = lambda: None
    state: Callable[[], Any] = lambda: None
    around: Callable[[], Any] | None = None  # what is on at the last call
    names: Callable[[int], dict[str, Any]] = field(default=lambda _: {})  # arguments by name


CHANGES: dict[str, Callable[[], Change]] = {}
REPLAYED: set[str] = set()  # those that a tape must not refuse


def change(make: Callable[[], Change]) -> Callable[[], Change]:
    assert make.__name__ not in CHANGES
    CHANGES[make.__name__] = make
    return make


def replayed(make: Callable[[], Change]) -> Callable[[], Change]:
    REPLAYED.add(make.__name__)
    return change(make)


def numbers(call: int, *sizes: int) -> torch.Tensor:
    return torch.randn(*(sizes or (3,)), generator=torch.Generator().manual_seed(call))


def one(call: int) -> tuple[torch.Tensor]:
    return (numbers(call),)


def given(*values: Any) -> Callable[[int], tuple[Any, ...]]:
    """A tensor, and at the last call another value than before."""
    return lambda call: (numbers(call), values[call > 1] if len(values) == 2 else values[call])


SCALE = 2.0
TABLE = {"scale": 2.0}
FLAG = False
COUNT = 0


def set_global(name: str, value: Any) -> Callable[[], None]:
    def change() -> None:
        globals()[name] = value

    return change


@change
def a_global_number() -> Change:
    set_global("SCALE", 2.0)()
    return Change(lambda x: x * SCALE, one, set_global("SCALE", 3.0))


@change
def a_global_flag() -> Change:
    set_global("FLAG", False)()
    return Change(lambda x: x * 2 if FLAG else x, one, set_global("FLAG", True))


def helper(x: torch.Tensor) -> torch.Tensor:
    return x * SCALE


@change
def a_global_of_a_helper() -> Change:
    set_global("SCALE", 2.0)()
    return Change(lambda x: helper(x) + 1, one, set_global("SCALE", 3.0))


@change
def a_global_dict() -> Change:
    TABLE["scale"] = 2.0
    return Change(lambda x: x * TABLE["scale"], one, lambda: TABLE.update(scale=3.0))


@change
def a_function_that_is_replaced() -> Change:
    set_global("HELPER", lambda x: x + 1)()
    return Change(lambda x: HELPER(x), one, set_global("HELPER", lambda x: x + 2))  # type: ignore[name-defined] # noqa: F821


@change
def a_number_in_a_closure() -> Change:
    scale = 2.0

    def function(x: torch.Tensor) -> torch.Tensor:
        return x * scale

    def change() -> None:
        nonlocal scale
        scale = 3.0

    return Change(function, one, change)


@change
def a_closure_of_a_closure() -> Change:
    scale = 2.0

    def inner(x: torch.Tensor) -> torch.Tensor:
        return x * scale

    def function(x: torch.Tensor) -> torch.Tensor:
        return inner(x) + 1

    def change() -> None:
        nonlocal scale
        scale = 3.0

    return Change(function, one, change)


@change
def a_count_in_a_closure() -> Change:
    count = 0

    def function(x: torch.Tensor) -> torch.Tensor:
        nonlocal count
        count += 1
        return x * count

    return Change(function, one)


@change
def a_global_count() -> Change:
    set_global("COUNT", 0)()

    def function(x: torch.Tensor) -> torch.Tensor:
        global COUNT
        COUNT += 1
        return x if COUNT < 3 else -x

    return Change(function, one)


@change
def a_count_in_a_list() -> Change:
    count = [0]

    def function(x: torch.Tensor) -> torch.Tensor:
        count[0] += 1
        return x * count[0]

    return Change(function, one)


@change
def a_count_in_a_default() -> Change:
    def function(x: torch.Tensor, count: Any = [0]) -> torch.Tensor:  # noqa: B006
        count[0] += 1
        return x * count[0]

    function.__defaults__[0][0] = 0  # type: ignore[index]
    return Change(function, one)


@change
def an_attribute_of_the_function() -> Change:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * function.scale  # type: ignore[attr-defined]

    function.scale = 2.0  # type: ignore[attr-defined]
    return Change(function, one, lambda: setattr(function, "scale", 3.0))


@change
def a_deque() -> Change:
    values = collections.deque([2.0, 3.0])
    return Change(lambda x: x * values[0], one, lambda: values.rotate())


@change
def a_set() -> Change:
    values = {"relu"}
    return Change(lambda x: x.relu() if "relu" in values else x, one, values.clear)


@change
def an_array_of_numpy() -> Change:
    scale = numpy.array([2.0])
    return Change(lambda x: x * float(scale[0]), one, lambda: scale.fill(3.0))


@change
def an_array_of_python() -> Change:
    scale = array.array("d", [2.0])
    return Change(lambda x: x * scale[0], one, lambda: scale.__setitem__(0, 3.0))


@change
def a_namespace() -> Change:
    settings = types.SimpleNamespace(scale=2.0)
    return Change(lambda x: x * settings.scale, one, lambda: setattr(settings, "scale", 3.0))


@change
def an_argparse_namespace() -> Change:
    settings = argparse.Namespace(deep=types.SimpleNamespace(scale=2.0))
    return Change(lambda x: x * settings.deep.scale, one, lambda: setattr(settings.deep, "scale", 3.0))


@change
def a_mapping_proxy() -> Change:
    table = {"scale": 2.0}
    seen = types.MappingProxyType(table)
    return Change(lambda x: x * seen["scale"], one, lambda: table.update(scale=3.0))


@change
def a_chain_of_maps() -> Change:
    table: dict[str, float] = {}
    chain = collections.ChainMap(table, {"scale": 2.0})
    return Change(lambda x: x * chain["scale"], one, lambda: table.update(scale=3.0))


@change
def a_context_variable() -> Change:
    scale = contextvars.ContextVar("scale", default=2.0)
    scale.set(2.0)
    return Change(lambda x: x * scale.get(), one, lambda: scale.set(3.0))


@change
def an_iterator() -> Change:
    count = itertools.count(1)
    return Change(lambda x: x * next(count), one)


@change
def an_iterator_over_a_list() -> Change:
    count = iter([1.0, 2.0, 3.0])
    return Change(lambda x: x * next(count), one)


@change
def a_generator_that_is_asked() -> Change:
    count = (float(i) for i in range(5))
    return Change(lambda x: x * next(count), one)


@change
def random_numbers_of_python() -> Change:
    random.seed(0)
    return Change(lambda x: x * random.random(), one)


@change
def random_numbers_of_numpy() -> Change:
    numpy.random.seed(0)
    return Change(lambda x: x * float(numpy.random.rand()), one)


@change
def a_random_generator_of_numpy() -> Change:
    source = numpy.random.default_rng(0)
    return Change(lambda x: x * float(source.random()), one)


@change
def a_list_that_is_iterated() -> Change:
    layers = [torch.relu, torch.sigmoid]

    def function(x: torch.Tensor) -> torch.Tensor:
        for layer in layers:
            x = layer(x)
        return x

    return Change(function, one, lambda: layers.append(torch.tanh))


@change
def the_order_of_a_dict_that_is_iterated() -> Change:
    layers = {"a": torch.exp, "b": torch.sin}

    def function(x: torch.Tensor) -> torch.Tensor:
        for layer in layers.values():
            x = layer(x)
        return x

    return Change(function, one, lambda: layers.update(a=layers.pop("a")))


class Scaled(torch.nn.Module):
    factor = 2.0

    def __init__(self) -> None:
        super().__init__()
        self.scale = 2.0
        self.calls = 0
        self.inner = torch.nn.Linear(3, 3)
        self.register_buffer("shift", torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) * self.scale * self.factor + self.shift


def seeded(make: Callable[[], torch.nn.Module]) -> torch.nn.Module:
    torch.manual_seed(0)
    return make()


def of_module(model: Any, change: Callable[[], object], **more: Any) -> Change:
    return Change(model, lambda call: (numbers(call, 2, 3),), change, lambda: list(model.state_dict().values()), **more)


@change
def an_attribute_of_a_module() -> Change:
    model: Any = seeded(Scaled)
    return of_module(model, lambda: setattr(model, "scale", 3.0))


@change
def an_attribute_of_a_class() -> Change:
    model: Any = seeded(Scaled)
    Scaled.factor = 2.0
    return of_module(model, lambda: setattr(Scaled, "factor", 3.0))


@change
def an_attribute_over_that_of_the_class() -> Change:
    model: Any = seeded(Scaled)
    Scaled.factor = 2.0
    return of_module(model, lambda: setattr(model, "factor", 3.0))


@change
def a_forward_of_the_object() -> Change:
    model: Any = seeded(Scaled)
    return of_module(model, lambda: setattr(model, "forward", lambda x: x * 7))


@change
def a_forward_of_the_class() -> Change:
    class Own(Scaled):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) + 1

    return of_module(seeded(Own), lambda: setattr(Own, "forward", lambda self, x: x * 7))


@change
def a_count_of_a_module() -> Change:
    class Counts(Scaled):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return super().forward(x) * self.calls

    return of_module(seeded(Counts), lambda: None)


@change
def a_module_in_its_place() -> Change:
    model: Any = seeded(Scaled)
    return of_module(model, lambda: setattr(model, "inner", torch.nn.Linear(3, 3)))


@change
def a_layer_more() -> Change:
    model: Any = seeded(lambda: torch.nn.Sequential(torch.nn.Linear(3, 3)))
    return of_module(model, lambda: model.append(torch.nn.ReLU()))


@change
def a_parameter_in_its_place() -> Change:
    model: Any = seeded(Scaled)
    return of_module(model, lambda: setattr(model.inner, "weight", torch.nn.Parameter(torch.ones(3, 3))))


@change
def a_parameter_that_is_none() -> Change:
    model: Any = seeded(Scaled)
    return of_module(model, lambda: setattr(model.inner, "bias", None))


@change
def a_buffer_in_its_place() -> Change:
    model: Any = seeded(Scaled)
    return of_module(model, lambda: setattr(model, "shift", torch.zeros(3)))


@change
def a_state_that_is_assigned() -> Change:
    model: Any = seeded(Scaled)
    state = {key: value + 1 for key, value in model.state_dict().items()}
    return of_module(model, lambda: model.load_state_dict(state, assign=True))


@replayed
def a_state_that_is_loaded() -> Change:
    model: Any = seeded(Scaled)
    state = {key: value + 1 for key, value in model.state_dict().items()}
    return of_module(model, lambda: model.load_state_dict(state))


@replayed
def other_data() -> Change:
    model: Any = seeded(Scaled)
    return of_module(model, lambda: setattr(model.inner.weight, "data", torch.ones(3, 3)))


@change
def a_probability_of_dropout() -> Change:
    model: Any = seeded(lambda: torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.5)))
    return of_module(model, lambda: setattr(model[1], "p", 0.1))


@change
def evaluation_mode() -> Change:
    model: Any = seeded(lambda: torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3)))
    return of_module(model, model.eval)


@change
def evaluation_mode_of_a_layer() -> Change:
    model: Any = seeded(lambda: torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3)))
    return of_module(model, model[1].eval)


@change
def a_forward_hook() -> Change:
    model: Any = seeded(Scaled)
    return of_module(model, lambda: model.inner.register_forward_hook(lambda *values: values[2] * 2))


@change
def a_forward_hook_that_is_removed() -> Change:
    model: Any = seeded(Scaled)
    handle = model.register_forward_hook(lambda *values: values[2] * 2)
    return of_module(model, handle.remove)


@change
def a_forward_pre_hook() -> Change:
    model: Any = seeded(Scaled)
    return of_module(model, lambda: model.register_forward_pre_hook(lambda _, values: (values[0] * 2,)))


@change
def a_hook_for_all_modules() -> Change:
    handles: list[Any] = []
    register = torch.nn.modules.module.register_module_forward_hook

    class Scope:
        def __enter__(self) -> None:
            handles.append(register(lambda *values: values[2] * 2))

        def __exit__(self, *_: object) -> None:
            handles.pop().remove()

    return of_module(seeded(Scaled), lambda: None, around=Scope)


@change
def a_parametrization() -> Change:
    model: Any = seeded(Scaled)

    class Twice(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    register = torch.nn.utils.parametrize.register_parametrization
    return of_module(model, lambda: register(model.inner, "weight", Twice()))


def training(
    change: Callable[[Any, Any], object],
    optimizer_of: Any = torch.optim.SGD,
    begin: Callable[[Any], object] = lambda _: None,
    **settings: Any,
) -> Change:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    begin(model)
    optimizer = optimizer_of(model.parameters(), **(settings or {"lr": 0.1, "momentum": 0.9}))

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).pow(2).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    def state() -> Any:
        own = optimizer.state_dict()["state"]
        return [*model.state_dict().values(), [p.grad for p in model.parameters()], own]

    return Change(step, lambda call: (numbers(call, 5, 3),), lambda: change(model, optimizer), state)


@change
def another_state_of_the_optimizer() -> Change:
    return training(lambda _, optimizer: optimizer.load_state_dict(optimizer.state_dict()))


@change
def another_state_of_adam() -> Change:
    def change(_: Any, optimizer: Any) -> None:
        state = optimizer.state_dict()
        for part in state["state"].values():
            part["exp_avg"] = part["exp_avg"] + 1
        optimizer.load_state_dict(state)

    return training(change, torch.optim.Adam, lr=0.01)


@change
def a_state_that_is_dropped() -> Change:
    return training(lambda _, optimizer: optimizer.state.clear())


@change
def a_parameter_that_is_frozen() -> Change:
    return training(lambda model, _: model[0].weight.requires_grad_(False))


@change
def a_parameter_that_is_thawed() -> Change:
    return training(
        lambda model, _: model[0].weight.requires_grad_(True), begin=lambda model: model[0].weight.requires_grad_(False)
    )


@change
def a_module_that_is_frozen() -> Change:
    return training(lambda model, _: model[2].requires_grad_(False))


@change
def a_group_more() -> Change:
    extra = torch.nn.Parameter(torch.ones(2))
    extra.grad = torch.ones(2)
    return training(lambda _, optimizer: optimizer.add_param_group({"params": [extra]}))


@change
def a_parameter_more() -> Change:
    def change(model: Any, optimizer: Any) -> None:
        optimizer.param_groups[0]["params"].append(torch.nn.Parameter(torch.ones(2)))

    return training(change)


@change
def another_rate() -> Change:
    return training(lambda _, optimizer: optimizer.param_groups[0].update(lr=0.5))


@change
def other_betas() -> Change:
    return training(lambda _, optimizer: optimizer.param_groups[0].update(betas=(0.5, 0.6)), torch.optim.Adam, lr=0.01)


@change
def a_rate_that_is_a_tensor() -> Change:
    rate = torch.tensor(0.1)
    return training(lambda *_: rate.fill_(0.5), lr=rate)


@change
def a_hook_of_a_parameter() -> Change:
    return training(lambda model, _: model[0].weight.register_hook(lambda gradient: gradient * 2))


@change
def a_hook_after_accumulation() -> Change:
    def hook(parameter: Any) -> None:
        parameter.grad.mul_(2)

    return training(lambda model, _: model[0].weight.register_post_accumulate_grad_hook(hook))


@change
def a_hook_before_the_step() -> Change:
    return training(lambda model, optimizer: optimizer.register_step_pre_hook(lambda *_: model[0].weight.grad.mul_(2)))


@change
def a_hook_after_the_step() -> Change:
    def hook(optimizer: Any, *_: Any) -> None:
        with torch.no_grad():
            optimizer.param_groups[0]["params"][0].mul_(2)

    return training(lambda _, optimizer: optimizer.register_step_post_hook(hook))


@change
def a_backward_hook_of_a_module() -> Change:
    def hook(_: Any, gradients: Any, __: Any) -> Any:
        return tuple(None if each is None else each * 2 for each in gradients)

    return training(lambda model, _: model[1].register_full_backward_hook(hook))


@change
def an_optimizer_with_its_own_count() -> Change:
    class Counting(torch.optim.Optimizer):
        def __init__(self, parameters: Any, lr: float) -> None:
            super().__init__(parameters, {"lr": lr})

        @torch.no_grad()
        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                for parameter in group["params"]:
                    state = self.state[parameter]
                    state["step"] = state.get("step", 0) + 1
                    parameter.sub_(parameter.grad, alpha=group["lr"] / state["step"])

    return training(lambda *_: None, Counting, lr=0.1)


@change
def a_gradient_that_is_gone() -> Change:
    """The tape was made adding to one."""
    weight = torch.nn.Parameter(torch.ones(3))
    return Change(
        lambda x: (weight * x).sum().backward(), one, lambda: setattr(weight, "grad", None), lambda: weight.grad
    )


@replayed
def a_gradient_that_is_another() -> Change:
    weight = torch.nn.Parameter(torch.ones(3))
    return Change(
        lambda x: (weight * x).sum().backward(),
        one,
        lambda: setattr(weight, "grad", torch.full((3,), 5.0)),
        lambda: weight.grad,
    )


@change
def a_gradient_that_is_there() -> Change:
    weight = torch.nn.Parameter(torch.ones(3))

    def function(x: torch.Tensor) -> None:
        (weight * x).sum().backward()

    def arguments(call: int) -> tuple[torch.Tensor]:
        if call < 2:
            weight.grad = None
        return one(call)

    return Change(function, arguments, lambda: None, lambda: weight.grad)


@change
def only_one_of_two_is_cleared() -> Change:
    cleared, kept = torch.nn.Linear(3, 3), torch.nn.Parameter(torch.ones(3))
    with torch.no_grad():
        cleared.weight.fill_(0.5)
        cleared.bias.fill_(0.5)

    def function(x: torch.Tensor) -> None:
        cleared.zero_grad()
        (cleared(x) * kept).sum().backward()

    def arguments(call: int) -> tuple[torch.Tensor]:
        if call < 2:
            kept.grad = None
        return one(call)

    return Change(function, arguments, lambda: None, lambda: [kept.grad, cleared.weight.grad])


@replayed
def a_step_before_the_backward() -> Change:
    """Each call reads the gradients that the one before left."""
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def function(x: torch.Tensor) -> None:
        optimizer.step()
        optimizer.zero_grad()
        (weight * x).pow(2).sum().backward()

    return Change(function, one, lambda: None, lambda: [weight, weight.grad])


@change
def gradients_cleared_at_the_end() -> Change:
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def function(x: torch.Tensor) -> None:
        (weight * x).pow(2).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return Change(function, one, lambda: setattr(weight, "grad", torch.ones(3)), lambda: [weight, weight.grad])


@replayed
def a_step_that_only_clears() -> Change:
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def function(x: torch.Tensor) -> torch.Tensor:
        optimizer.step()
        optimizer.zero_grad()
        return x + 1

    def arguments(call: int) -> tuple[torch.Tensor]:
        weight.grad = numbers(call + 7)
        return one(call)

    return Change(function, arguments, lambda: None, lambda: [weight, weight.grad])


@change
def a_gradient_that_the_function_gives() -> Change:
    weight, given = torch.nn.Parameter(torch.ones(3)), torch.ones(3)

    def function(x: torch.Tensor) -> torch.Tensor:
        given.copy_(x)
        weight.grad = given
        return (weight * x).sum().detach()

    return Change(function, one, lambda: setattr(weight, "grad", None), lambda: [weight.grad, weight.grad is given])


@change
def a_step_at_every_third_call() -> Change:
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    calls = [0]

    def function(x: torch.Tensor) -> None:
        calls[0] += 1
        (weight * x).pow(2).sum().backward()
        if calls[0] % 3 == 0:
            optimizer.step()
            optimizer.zero_grad()

    return Change(function, one, lambda: None, lambda: [weight, weight.grad])


class Plain:
    def __init__(self, scale: float) -> None:
        self.scale = scale


class Slotted:
    __slots__ = ("scale",)

    def __init__(self, scale: float) -> None:
        self.scale = scale


@dataclasses.dataclass
class Settings:
    scale: float


@dataclasses.dataclass(frozen=True)
class Frozen:
    scale: float


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Always:
    """It says that it is equal to everything."""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


ARGUMENTS: dict[str, tuple[Any, Callable[..., Any]]] = {
    "an_object": ((Plain(2.0), Plain(3.0)), lambda x, a: x * a.scale),
    "an_object_with_slots": ((Slotted(2.0), Slotted(3.0)), lambda x, a: x * a.scale),
    "a_dataclass": ((Settings(2.0), Settings(3.0)), lambda x, a: x * a.scale),
    "a_frozen_dataclass": ((Frozen(0.0), Frozen(-0.0)), lambda x, a: x.abs() * a.scale),
    "one_that_is_always_equal": ((Always(2.0), Always(3.0)), lambda x, a: x * a.scale),
    "an_enumeration": ((Color.RED, Color.BLUE), lambda x, a: x * a.value),
    "a_set": (({1, 2}, {1, 2, 3}), lambda x, a: x * len(a)),
    "a_set_in_another_order": (({8, 0}, {0, 8}), lambda x, a: x - next(iter(a))),
    "an_array": ((numpy.array([2.0]), numpy.array([3.0])), lambda x, a: x * float(a[0])),
    "a_number_of_numpy": ((numpy.float32(2.0), numpy.float32(3.0)), lambda x, a: x * float(a)),
    "a_list_of_arrays": (([numpy.ones(2)], [numpy.zeros(2)]), lambda x, a: x * float(a[0].sum())),
    "a_zero_with_a_sign": ((0.0, -0.0), lambda x, a: x.abs() * a),
    "true_for_one": ((1, True), lambda x, a: x if a is True else x * 2),
    "a_whole_float": ((1, 1.0), lambda x, a: (x > 0).long() * a),
    "not_a_number": ((float("nan"), 1.0), lambda x, a: x * a),
    "the_order_of_a_dict": (({"a": 2.0, "b": 3.0}, {"b": 3.0, "a": 2.0}), lambda x, a: x - next(iter(a.values()))),
    "tensors_in_another_order": (
        ({"a": torch.ones(3), "b": torch.zeros(3)}, {"b": torch.zeros(3), "a": torch.ones(3)}),
        lambda x, a: x * next(iter(a.values())),
    ),
    "a_key_of_another_type": (({1: 2.0}, {True: 2.0}), lambda x, a: x if any(k is True for k in a) else -x),
    "a_partial": (
        (functools.partial(torch.mul, other=2.0), functools.partial(torch.mul, other=3.0)),
        lambda x, a: a(x),
    ),
    "a_function": ((torch.sin, torch.cos), lambda x, a: a(x)),
    "a_lambda": ((lambda x: x + 1, lambda x: x + 2), lambda x, a: a(x)),
    "a_range": ((range(2), range(3)), lambda x, a: x * len(a)),
    "a_slice": ((slice(0, 2), slice(1, 3)), lambda x, a: x[a]),
    "bytes": ((bytearray(b"a"), bytearray(b"bb")), lambda x, a: x * len(a)),
    "a_tuple_of_numbers": (((1.0, 2.0), (1.0, 3.0)), lambda x, a: x * a[1]),
    "a_dtype": ((torch.float32, torch.float64), lambda x, a: x.to(a)),
    "a_parameter": ((torch.ones(3), torch.nn.Parameter(torch.ones(3), False)),
                    lambda x, a: x * (2 if isinstance(a, torch.nn.Parameter) else 1) * a),
    "one_that_requires_a_gradient": ((torch.ones(3), torch.ones(3, requires_grad=True)),
                                     lambda x, a: (x * 2 if a.requires_grad else x).detach()),
    "a_transposed_one": ((torch.ones(2, 3), torch.ones(3, 2).t()),
                         lambda x, a: x * (2 if a.is_contiguous() else 3)),
    "other_strides": ((torch.ones(2, 3), torch.ones(3, 2).t()), lambda x, a: x * a.stride(0)),
    "another_offset": ((torch.ones(3), torch.ones(6)[3:]), lambda x, a: x * a.storage_offset()),
    "an_iterator": ((iter([1.0]), iter([2.0])), lambda x, a: x * next(a, 5.0)),
    "a_namespace": ((types.SimpleNamespace(a=1.0), types.SimpleNamespace(a=2.0)), lambda x, a: x * a.a),
    "a_deque": ((collections.deque([1.0]), collections.deque([2.0])), lambda x, a: x * a[0]),
    "an_ordered_dict": ((collections.OrderedDict(a=1.0), collections.OrderedDict(a=2.0)), lambda x, a: x * a["a"]),
    "a_generator_of_torch": (
        (torch.Generator().manual_seed(1), torch.Generator().manual_seed(2)),
        lambda x, a: x + torch.rand(3, generator=a),
    ),
    "nothing_for_something": ((None, 2.0), lambda x, a: x if a is None else x * a),
}  # fmt: skip


def _of_arguments(values: Any, function: Callable[..., Any]) -> Callable[[], Change]:
    return lambda: Change(function, given(*values))


for _name, (_values, _function) in ARGUMENTS.items():
    CHANGES[f"argument_{_name}"] = _of_arguments(_values, _function)


@change
def an_object_that_changes_in_its_place() -> Change:
    settings = Settings(2.0)
    return Change(
        lambda x, s: x * s.scale, lambda call: (numbers(call), settings), lambda: setattr(settings, "scale", 3.0)
    )


@change
def an_array_that_changes_in_its_place() -> Change:
    scale = numpy.array([2.0])
    return Change(lambda x, s: x * float(s[0]), lambda call: (numbers(call), scale), lambda: scale.fill(3.0))


@change
def a_set_that_changes_in_its_place() -> Change:
    kept = {1}
    return Change(lambda x, s: x * len(s), lambda call: (numbers(call), kept), lambda: kept.add(2))


@change
def an_attribute_of_a_tensor() -> Change:
    def arguments(call: int) -> tuple[torch.Tensor]:
        x = numbers(call)
        x.scale = 2.0 if call < 2 else 3.0  # type: ignore[attr-defined]
        return (x,)

    return Change(lambda x: x * x.scale, arguments)


@change
def names_in_another_order() -> Change:
    def function(**values: Any) -> torch.Tensor:
        first, second = values.values()
        return first - second

    def names(call: int) -> dict[str, Any]:
        a, b = numbers(call), numbers(call + 5)
        return {"a": a, "b": b} if call < 2 else {"b": b, "a": a}

    return Change(function, lambda _: (), names=names)


@change
def one_tensor_twice() -> Change:
    """At the trace, and two at the last call."""
    return Change(
        lambda a, b: a.add_(1) * b, lambda call: (x := numbers(call), x) if call < 2 else (numbers(3), numbers(4))
    )


@change
def one_tensor_twice_at_last() -> Change:
    return Change(
        lambda a, b: a.add_(1) * b, lambda call: (numbers(3), numbers(4)) if call < 2 else (x := numbers(call), x)
    )


@change
def one_leaf_twice_at_last() -> Change:
    leaves: list[torch.Tensor] = []

    def arguments(call: int) -> tuple[torch.Tensor, torch.Tensor]:
        a, b = numbers(call).requires_grad_(), numbers(call + 9).requires_grad_()
        leaves[:] = [a, b]
        return (a, b) if call < 2 else (a, a)

    return Change(lambda a, b: (a * b).sum().backward(), arguments, lambda: None, lambda: [x.grad for x in leaves])


@change
def an_input_that_is_no_leaf() -> Change:
    weight = torch.nn.Parameter(torch.ones(3))

    def arguments(call: int) -> tuple[torch.Tensor]:
        weight.grad = None
        return (numbers(call) * weight,)

    return Change(lambda x: x.pow(2).sum().backward(), arguments, lambda: None, lambda: weight.grad)


@replayed
def the_gradient_of_an_input() -> Change:
    inputs: list[torch.Tensor] = []

    def arguments(call: int) -> tuple[torch.Tensor]:
        inputs[:] = [numbers(call).requires_grad_()]
        inputs[0].grad = numbers(call + 3)
        return (inputs[0],)

    return Change(lambda x: x.pow(2).sum().backward(), arguments, lambda: None, lambda: inputs[0].grad)


@change
def a_tensor_of_a_variable() -> Change:
    scale = torch.full((3,), 2.0)

    def function(x: torch.Tensor) -> torch.Tensor:
        return x * scale

    def change() -> None:
        nonlocal scale
        scale = torch.full((3,), 3.0)

    return Change(function, one, change)


@change
def a_tensor_in_a_dict() -> Change:
    table = {"scale": torch.full((3,), 2.0)}
    return Change(lambda x: x * table["scale"], one, lambda: table.update(scale=torch.full((3,), 3.0)))


@change
def a_tensor_in_a_list_of_an_object() -> Change:
    holder = Plain(1.0)
    holder.parts = [torch.full((3,), 2.0)]  # type: ignore[attr-defined]
    return Change(lambda x: x * holder.parts[0], one, lambda: holder.parts.insert(0, torch.zeros(3)))  # type: ignore[attr-defined]


@change
def two_tensors_that_change_places() -> Change:
    memory = types.SimpleNamespace(a=torch.full((3,), 2.0), b=torch.full((3,), 5.0))

    def function(x: torch.Tensor) -> torch.Tensor:
        result = x * memory.a + memory.b.sum()
        memory.a, memory.b = memory.b, memory.a
        return result

    return Change(function, one)


@change
def a_default_dtype() -> Change:
    class Scope:
        def __enter__(self) -> None:
            torch.set_default_dtype(torch.float64)

        def __exit__(self, *_: object) -> None:
            torch.set_default_dtype(torch.float32)

    return Change(lambda x: x.double() + torch.tensor([0.1, 0.2, 0.3]), one, around=Scope)


@replayed
def another_number_of_threads() -> Change:
    class Scope:
        def __enter__(self) -> None:
            self.threads = torch.get_num_threads()
            torch.set_num_threads(2)

        def __exit__(self, *_: object) -> None:
            torch.set_num_threads(self.threads)

    return Change(lambda x: x.sum(), lambda call: (numbers(call, 100_000),), around=Scope)


@change
def a_tangent() -> Change:
    levels: list[Any] = []

    def arguments(call: int) -> tuple[torch.Tensor]:
        if call < 2:
            return one(call)
        return (torch.autograd.forward_ad.make_dual(numbers(call), torch.ones(3)),)

    class Scope:
        def __enter__(self) -> None:
            levels.append(torch.autograd.forward_ad.dual_level())
            levels[-1].__enter__()

        def __exit__(self, *error: Any) -> None:
            levels.pop().__exit__(*error)

    def function(x: torch.Tensor) -> Any:
        result = x * x
        if not levels:
            return result, None
        return torch.autograd.forward_ad.unpack_dual(result)

    return Change(function, arguments, around=Scope)


class Doubled(torch.autograd.Function):
    factor = 2.0

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient * Doubled.factor


@change
def a_backward_that_reads_python() -> Change:
    Doubled.factor = 2.0

    def function(x: torch.Tensor) -> torch.Tensor:
        leaf = x.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(Doubled.apply(leaf).sum(), leaf)
        return gradient

    return Change(function, one, lambda: setattr(Doubled, "factor", 3.0))


@change
def an_item_that_decides() -> Change:
    return Change(lambda x: x * 2 if x.sum().item() > 0 else x, lambda call: (torch.full((3,), 1.0 - call),))


@change
def a_list_that_decides() -> Change:
    return Change(lambda x: x * len([v for v in x.tolist() if v > 0]), one)


@change
def an_error_that_is_caught() -> Change:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        try:
            return x + y[int(x.argmax())]
        except IndexError:
            return x - 1

    return Change(function, lambda call: (torch.eye(3)[call], torch.ones(2)))


@replayed
def views_that_are_written() -> Change:
    kept = torch.zeros(4, 3)

    def function(x: torch.Tensor) -> torch.Tensor:
        kept[1].add_(x)
        kept.t()[:, 2].mul_(2)
        return kept.clone()

    return Change(function, one, lambda: kept.add_(1), lambda: kept)


@replayed
def an_input_that_is_returned() -> Change:
    return Change(lambda x: {"same": x, "twice": (x, x), "more": x + 1, 3: [x]}, one)


@change
def a_buffer_that_grows() -> Change:
    kept = torch.zeros(0)

    def function(x: torch.Tensor) -> torch.Tensor:
        kept.set_(torch.cat([kept, x]))
        return kept.sum()

    return Change(function, one, lambda: None, lambda: kept)


@change
def a_memory_of_last_time() -> Change:
    memory: dict[str, torch.Tensor] = {"last": torch.zeros(3)}

    def function(x: torch.Tensor) -> torch.Tensor:
        result = x + memory["last"]
        memory["last"] = x.clone()
        return result

    return Change(function, one)


@replayed
def a_generator_as_result() -> Change:
    def function(x: torch.Tensor) -> Any:
        return tuple(part * 2 for part in x.unbind())

    return Change(function, one)


@change
def a_partial_function() -> Change:
    settings = {"scale": 2.0}

    def function(settings: dict[str, float], x: torch.Tensor) -> torch.Tensor:
        return x * settings["scale"]

    return Change(functools.partial(function, settings), one, lambda: settings.update(scale=3.0))


class Caller:
    def __init__(self) -> None:
        self.scale = 2.0
        self.seen: list[float] = []

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale

    def method(me, x: torch.Tensor) -> torch.Tensor:  # noqa: N805
        return x * me.scale + me.shift

    @property
    def shift(self) -> float:
        return self.scale

    @classmethod
    def of_class(cls, x: torch.Tensor) -> torch.Tensor:
        return x * cls.factor

    factor = 2.0


@change
def an_object_that_is_called() -> Change:
    caller = Caller()
    return Change(caller, one, lambda: setattr(caller, "scale", 3.0))


@change
def a_method() -> Change:
    caller = Caller()
    return Change(caller.method, one, lambda: setattr(caller, "scale", 3.0))


@change
def a_method_of_a_class() -> Change:
    Caller.factor = 2.0
    return Change(Caller.of_class, one, lambda: setattr(Caller, "factor", 3.0))


@change
def an_attribute_by_its_name_as_text() -> Change:
    caller = Caller()
    return Change(lambda x: x * getattr(caller, "scale"), one, lambda: setattr(caller, "scale", 3.0))  # noqa: B009


@change
def an_object_in_a_list_in_a_dict() -> Change:
    callers = {"all": [Caller(), Caller()]}

    def function(x: torch.Tensor) -> torch.Tensor:
        for caller in callers["all"]:
            x = x * caller.scale
        return x

    return Change(function, one, lambda: setattr(callers["all"][1], "scale", 3.0))


@replayed
def a_seed_outside() -> Change:
    return Change(lambda x: functional.dropout(x, 0.5), one, lambda: torch.manual_seed(5))


@change
def the_seed_that_is_asked_for() -> Change:
    torch.manual_seed(3)
    return Change(lambda x: x * (torch.initial_seed() % 7), one, lambda: torch.manual_seed(5))


def checkpointed(**options: Any) -> Change:
    torch.manual_seed(0)
    layer = torch.nn.Linear(3, 3)

    def block(x: torch.Tensor) -> torch.Tensor:
        return functional.dropout(layer(x), 0.5) * torch.rand(3)

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        layer.zero_grad()
        leaf = x.detach().requires_grad_()
        result = checkpoint(block, leaf, **options) + checkpoint(block, leaf * 2, **options)
        result.pow(2).sum().backward()
        return result.detach(), leaf.grad.clone()

    return Change(function, lambda call: (numbers(call, 8, 3),), state=lambda: [p.grad for p in layer.parameters()])


@replayed
def a_checkpoint() -> Change:
    return checkpointed(use_reentrant=False)


@replayed
def a_reentrant_checkpoint() -> Change:
    return checkpointed(use_reentrant=True)


@replayed
def a_checkpoint_that_forgets() -> Change:
    return checkpointed(use_reentrant=False, preserve_rng_state=False)


@replayed
def a_reentrant_checkpoint_that_forgets() -> Change:
    return checkpointed(use_reentrant=True, preserve_rng_state=False)


@replayed
def a_checkpoint_in_a_sequence() -> Change:
    model = seeded(lambda: torch.nn.Sequential(*(torch.nn.Dropout(0.5) for _ in range(4))))

    def function(x: torch.Tensor) -> torch.Tensor:
        leaf = x.detach().requires_grad_()
        checkpoint_sequential(model, 2, leaf, use_reentrant=False).sum().backward()
        return leaf.grad

    return Change(function, lambda call: (numbers(call, 8, 3),))


@replayed
def a_fork_of_the_generator() -> Change:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with torch.random.fork_rng():
            inside = torch.rand(3)
        return x + inside, torch.rand(3)

    return Change(function, one)


@replayed
def a_fork_that_is_seeded() -> Change:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with torch.random.fork_rng():
            torch.manual_seed(5)
            inside = torch.rand(3)
        return x + inside, torch.rand(3)

    return Change(function, one)


@replayed
def a_state_that_is_taken_and_set() -> Change:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        state = torch.get_rng_state()
        first = torch.rand(3)
        torch.set_rng_state(state)
        return first, x + torch.rand(3)

    return Change(function, one)


@replayed
def a_copy_of_a_state() -> Change:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        state = torch.get_rng_state().clone()
        first, second = torch.rand(3), torch.randn(2)
        torch.set_rng_state(state)
        return first, second, x + torch.rand(3)

    return Change(function, one)


@replayed
def a_state_that_is_returned() -> Change:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        before = torch.get_rng_state()
        return before, x + torch.rand(3), torch.get_rng_state()

    return Change(function, one)


@replayed
def a_state_from_outside() -> Change:
    state = torch.Generator().manual_seed(3).get_state()

    def function(x: torch.Tensor) -> torch.Tensor:
        torch.set_rng_state(state)
        return x + torch.rand(3)

    return Change(function, one, lambda: state.copy_(torch.Generator().manual_seed(4).get_state()))


@change
def another_state_from_outside() -> Change:
    state = torch.Generator().manual_seed(3).get_state()

    def function(x: torch.Tensor) -> torch.Tensor:
        torch.set_rng_state(state)
        return x + torch.rand(3)

    def change() -> None:
        nonlocal state
        state = torch.Generator().manual_seed(4).get_state()

    return Change(function, one, change)


@replayed
def a_state_that_is_given() -> Change:
    def function(state: torch.Tensor) -> torch.Tensor:
        torch.set_rng_state(state)
        return torch.rand(3)

    return Change(function, lambda call: (torch.Generator().manual_seed(call).get_state(),))


@change
def a_state_that_python_looks_at() -> Change:
    return Change(lambda x: x * (sum(torch.get_rng_state().tolist()) % 100) + torch.rand(3), one)


@replayed
def a_generator_that_is_set_back() -> Change:
    own = torch.Generator().manual_seed(3)

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        state = own.get_state()
        first = torch.rand(3, generator=own)
        own.set_state(state)
        return first, torch.rand(3, generator=own), x + torch.rand(3, generator=own.clone_state())

    return Change(function, one, state=own.get_state)


@replayed
def a_generator_in_the_state_of_another() -> Change:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        other = torch.Generator()
        other.set_state(torch.get_rng_state())
        return x + torch.rand(3, generator=other), torch.rand(3)

    return Change(function, one)


@replayed
def a_generator_that_is_seeded() -> Change:
    own = torch.Generator()

    def function(x: torch.Tensor) -> torch.Tensor:
        own.manual_seed(7)
        return x + torch.rand(3, generator=own)

    return Change(function, one, lambda: own.manual_seed(9), own.get_state)


@replayed
def a_seed_within() -> Change:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first = torch.rand(3)
        torch.manual_seed(7)
        return first, x + torch.rand(3)

    return Change(function, one)


@replayed
def a_seed_and_nothing_else() -> Change:
    def function(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(7)
        return x + 1

    return Change(function, one)


@change
def a_seed_of_the_system() -> Change:
    def function(x: torch.Tensor) -> torch.Tensor:
        torch.seed()
        return x + torch.rand(3)

    return Change(function, one)
