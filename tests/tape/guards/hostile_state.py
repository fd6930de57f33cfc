"""More programs that change between a trace and a replay: state in odd places, effects, gradients and libraries."""

from __future__ import annotations

import collections
import copy
import functools
import operator
import os
import types
import weakref
from typing import Any

import numpy
import torch

from tests.tape.guards.hostile_changes import Change, change, numbers, one, replayed, seeded

FACTOR = 2.0


def rows(call: int) -> tuple[torch.Tensor]:
    return (numbers(call, 4, 3),)


def linear() -> Any:
    return seeded(lambda: torch.nn.Linear(3, 3))


@replayed
def a_hook_that_keeps_features() -> Change:
    layer, features = linear(), []
    layer.register_forward_hook(lambda _, __, output: features.append(output.detach().clone()))
    return Change(lambda x: layer(x).detach(), one, state=lambda: features)


@replayed
def a_cache_that_is_written() -> Change:
    cache: dict[str, torch.Tensor] = {}

    def function(x: torch.Tensor) -> torch.Tensor:
        cache["double"] = x * 2
        return x + 1

    return Change(function, one, state=lambda: cache)


@replayed
def a_cache_that_is_filled() -> Change:
    """With a new key at each call it would be another program; here it is emptied in between."""
    cache: dict[str, torch.Tensor] = {}

    def function(x: torch.Tensor) -> torch.Tensor:
        cache["double"] = x * 2
        return x + 1

    def arguments(call: int) -> tuple[torch.Tensor]:
        cache.clear()
        return one(call)

    return Change(function, arguments, state=lambda: cache)


@replayed
def a_list_for_a_look() -> Change:
    seen: list[torch.Tensor] = []

    def function(x: torch.Tensor) -> torch.Tensor:
        seen.append(x * 2)
        seen.append(x)
        return x + 1

    return Change(function, one, state=lambda: seen)


@replayed
def an_attribute_for_a_look() -> Change:
    holder = types.SimpleNamespace(last=None)

    def function(x: torch.Tensor) -> torch.Tensor:
        holder.last = x.sum()
        return x + 1

    return Change(function, one, state=lambda: holder.last)


@replayed
def a_variable_for_a_look() -> Change:
    last = torch.zeros(())

    def function(x: torch.Tensor) -> torch.Tensor:
        nonlocal last
        last = x.sum()
        return x + 1

    return Change(function, one, state=lambda: last)


@change
def a_list_that_is_read_and_grows() -> Change:
    history = [torch.zeros(3)]

    def function(x: torch.Tensor) -> torch.Tensor:
        history.append(x.clone())
        return torch.stack(history).sum(0)

    return Change(function, one)


@change
def an_average_in_an_attribute() -> Change:
    holder = types.SimpleNamespace(mean=torch.zeros(3))

    def function(x: torch.Tensor) -> torch.Tensor:
        holder.mean = 0.9 * holder.mean + 0.1 * x
        return holder.mean.clone()

    return Change(function, one, state=lambda: holder.mean)


@change
def a_hidden_state() -> Change:
    torch.manual_seed(0)
    network, memory = torch.nn.LSTM(3, 3), [None]

    def function(x: torch.Tensor) -> torch.Tensor:
        output, hidden = network(x, memory[0])
        memory[0] = tuple(part.detach() for part in hidden)  # type: ignore[call-overload]
        return output.detach()

    return Change(function, lambda call: (numbers(call, 2, 1, 3),))


@replayed
def an_input_that_is_written() -> Change:
    return Change(lambda x: x.mul_(2).add_(1), one)


@replayed
def an_input_that_is_made_to_require_a_gradient() -> Change:
    inputs: list[torch.Tensor] = []

    def arguments(call: int) -> tuple[torch.Tensor]:
        inputs[:] = one(call)
        return (inputs[0],)

    def function(x: torch.Tensor) -> None:
        x.requires_grad_().pow(2).sum().backward()

    return Change(function, arguments, state=lambda: [inputs[0].grad, inputs[0].requires_grad])


@replayed
def a_copy_of_a_model_that_follows() -> Change:
    model = linear()
    other = copy.deepcopy(model)

    def function(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            for mine, its in zip(other.parameters(), model.parameters(), strict=True):
                mine.mul_(0.9).add_(its, alpha=0.1)
        return other(x).detach()

    return Change(function, one, lambda: model.weight.data.mul_(2), lambda: list(other.parameters()))


@replayed
def a_weight_that_is_computed() -> Change:
    layer = torch.nn.utils.parametrizations.weight_norm(linear())
    return Change(lambda x: layer(x).detach(), one, lambda: layer.parametrizations.weight.original0.data.mul_(2))


@replayed
def a_weight_that_iterates() -> Change:
    layer = torch.nn.utils.parametrizations.spectral_norm(linear())
    return Change(lambda x: layer(x).detach(), one, state=lambda: list(layer.buffers()))


@replayed
def an_average_of_models() -> Change:
    model = linear()
    average = torch.optim.swa_utils.AveragedModel(model)

    def function(x: torch.Tensor) -> torch.Tensor:
        average.update_parameters(model)
        return average(x).detach()

    return Change(function, one, lambda: model.weight.data.mul_(2), lambda: [*average.parameters(), *average.buffers()])


@replayed
def a_scale_for_gradients() -> Change:
    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)

    def function(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).pow(2).sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return Change(function, rows, state=lambda: [*model.parameters(), scaler.get_scale()])


@change
def parameters_that_are_given_by_name() -> Change:
    model = linear()
    table = {name: value.detach().clone() for name, value in model.named_parameters()}
    return Change(
        lambda x: torch.func.functional_call(model, table, (x,)), one, lambda: table.update(weight=torch.ones(3, 3))
    )


@replayed
def a_transform_of_a_function() -> Change:
    weight = torch.ones(3)
    return Change(lambda x: torch.func.grad(lambda w: (w * x).pow(2).sum())(weight), one, lambda: weight.mul_(2))


@replayed
def random_numbers_in_a_vmap() -> Change:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.vmap(lambda row: row + torch.rand(3), randomness="different")(x)

    return Change(function, rows)


@replayed
def a_gradient_of_a_gradient() -> Change:
    weight = torch.nn.Parameter(torch.ones(3))

    def function(x: torch.Tensor) -> torch.Tensor:
        (gradient,) = torch.autograd.grad((weight * x).pow(3).sum(), weight, create_graph=True)
        weight.grad = None
        gradient.pow(2).sum().backward()
        return gradient.detach()

    return Change(function, one, state=lambda: weight.grad)


@replayed
def two_backwards() -> Change:
    weight = torch.nn.Parameter(torch.ones(3))

    def function(x: torch.Tensor) -> None:
        weight.grad = None
        loss = (weight * x).sum()
        loss.backward(retain_graph=True)
        loss.backward()

    return Change(function, one, state=lambda: weight.grad)


@replayed
def gradients_that_are_zeroed_outside() -> Change:
    weight = torch.nn.Parameter(torch.ones(3))
    weight.grad = torch.zeros(3)

    def zero() -> None:
        weight.grad.zero_()  # type: ignore[union-attr]

    return Change(lambda x: (weight * x).pow(2).sum().backward(), one, zero, lambda: weight.grad)


@replayed
def inference_while_gradients_come_and_go() -> Change:
    model = linear()
    return Change(lambda x: model(x).detach(), one, lambda: setattr(model.weight, "grad", torch.ones(3, 3)))


@change
def a_gradient_that_decides() -> Change:
    weight = torch.nn.Parameter(torch.ones(3))
    return Change(
        lambda x: x * 2 if weight.grad is None else x * 3, one, lambda: setattr(weight, "grad", torch.ones(3))
    )


@change
def a_count_of_writes() -> Change:
    kept = torch.ones(3)
    return Change(lambda x: x * kept._version, one, lambda: kept.add_(1))


@change
def an_address() -> Change:
    kept = torch.ones(3)
    return Change(
        lambda x: x * 2 if x.data_ptr() == kept.data_ptr() else x * 3, lambda call: one(call) if call < 2 else (kept,)
    )


@change
def an_attribute_of_a_parameter() -> Change:
    layer = linear()
    layer.weight.scale = 2.0
    return Change(lambda x: (layer(x) * layer.weight.scale).detach(), one, lambda: setattr(layer.weight, "scale", 3.0))


@change
def a_variable_of_the_system() -> Change:
    os.environ["TORCHREEL_TEST_SCALE"] = "2"
    return Change(
        lambda x: x * float(os.environ["TORCHREEL_TEST_SCALE"]),
        one,
        lambda: os.environ.update(TORCHREEL_TEST_SCALE="3"),
    )


@change
def a_global_by_its_name_as_text() -> Change:
    globals()["FACTOR"] = 2.0
    return Change(lambda x: x * globals()["FACTOR"], one, lambda: globals().update(FACTOR=3.0))


@change
def a_global_that_comes() -> Change:
    globals().pop("LATER", None)

    def function(x: torch.Tensor) -> torch.Tensor:
        try:
            return x * LATER  # type: ignore[name-defined, no-any-return]
        except NameError:
            return x

    return Change(function, one, lambda: globals().update(LATER=2.0))


class Slotted:
    __slots__ = ("scale",)

    def __init__(self) -> None:
        self.scale = 2.0


@change
def a_slot() -> Change:
    holder = Slotted()
    return Change(lambda x: x * holder.scale, one, lambda: setattr(holder, "scale", 3.0))


class Reads:
    @property
    def scale(self) -> float:
        return FACTOR


@change
def a_property_that_reads_a_global() -> Change:
    globals()["FACTOR"] = 2.0
    holder = Reads()
    return Change(lambda x: x * holder.scale, one, lambda: globals().update(FACTOR=3.0))


@change
def a_named_tuple_in_a_dict() -> Change:
    pair = collections.namedtuple("pair", "scale shift")
    table = {"pair": pair(2.0, 1.0)}
    return Change(lambda x: x * table["pair"].scale, one, lambda: table.update(pair=pair(3.0, 1.0)))


@change
def a_weak_reference() -> Change:
    holder = Reads()
    holder.shift = 2.0  # type: ignore[attr-defined]
    reference = weakref.ref(holder)
    return Change(lambda x: x * reference().shift, one, lambda: setattr(holder, "shift", 3.0))  # type: ignore[union-attr]


@change
def an_attribute_by_an_operator() -> Change:
    get, holder = operator.attrgetter("scale"), types.SimpleNamespace(scale=2.0)
    return Change(lambda x: x * get(holder), one, lambda: setattr(holder, "scale", 3.0))


@replayed
def a_function_with_a_cache() -> Change:
    @functools.lru_cache
    def scale(key: int) -> float:
        return 2.0 * key

    return Change(lambda x: x * scale(1), one)


@change
def a_module_more_in_a_list() -> Change:
    layers = torch.nn.ModuleList([torch.nn.ReLU()])

    def function(x: torch.Tensor) -> torch.Tensor:
        for layer in layers:
            x = layer(x)
        return x

    return Change(function, one, lambda: layers.append(torch.nn.Tanh()))


@change
def a_parameter_more_in_a_list() -> Change:
    parts = torch.nn.ParameterList([torch.ones(3)])

    def function(x: torch.Tensor) -> torch.Tensor:
        for part in parts:
            x = x + part
        return x.detach()

    return Change(function, one, lambda: parts.append(torch.ones(3)))


@change
def parameters_in_another_order() -> Change:
    parts = torch.nn.ParameterDict({"a": torch.ones(3), "b": torch.zeros(3)})

    def change() -> None:
        parts["a"] = parts.pop("a")

    return Change(lambda x: (x * next(iter(parts.values()))).detach(), one, change)


class Maybe(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * getattr(self, "scale", 1.0)


@change
def an_attribute_that_comes() -> Change:
    model = Maybe()
    return Change(lambda x: model(x), one, lambda: setattr(model, "scale", 2.0))


@change
def a_buffer_that_comes() -> Change:
    model = Maybe()
    return Change(lambda x: model(x), one, lambda: model.register_buffer("scale", torch.full((3,), 2.0)))


@change
def a_key_that_comes() -> Change:
    table = {"a": 1.0}
    return Change(lambda x: x * table.get("b", 1.0), one, lambda: table.update(b=2.0))


@change
def the_mode_of_a_module_that_is_not_called() -> Change:
    layer = torch.nn.Dropout(0.5)
    return Change(lambda x: x * 2 if layer.training else x, one, layer.eval)


@change
def what_a_context_keeps() -> Change:
    table = {"scale": 2.0}

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.scale = table["scale"]
            return x * ctx.scale

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> Any:
            return gradient * ctx.scale

    def function(x: torch.Tensor) -> Any:
        leaf = x.detach().requires_grad_()
        Scaled.apply(leaf).sum().backward()
        return leaf.grad

    return Change(function, one, lambda: table.update(scale=3.0))


@change
def whether_gradients_are_on() -> Change:
    return Change(lambda x: x * 2 if torch.is_grad_enabled() else x, one, around=torch.no_grad)


@change
def memory_that_numpy_writes() -> Change:
    kept = torch.ones(3)
    array = kept.numpy()

    def function(x: torch.Tensor) -> torch.Tensor:
        array[:] = array * 2
        return x * kept

    return Change(function, one, state=lambda: kept)


@change
def an_array_that_becomes_a_tensor() -> Change:
    array = numpy.ones(3)
    return Change(lambda x: x * torch.tensor(array), one, lambda: array.fill(3.0))


@change
def a_list_that_becomes_a_tensor() -> Change:
    values = [1.0, 2.0, 3.0]
    return Change(lambda x: x * torch.tensor(values), one, lambda: values.__setitem__(0, 9.0))


@change
def batches_that_are_taken_within() -> Change:
    batches = iter([numbers(call + 50) for call in range(5)])
    return Change(lambda x: x + next(batches), one)


@change
def an_optimizer_that_asks_again() -> Change:
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.LBFGS([weight], max_iter=2)

    def function(x: torch.Tensor) -> torch.Tensor:
        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = (weight * x - 1).pow(2).sum()
            loss.backward()
            return loss

        return optimizer.step(closure).detach()

    return Change(function, one, state=lambda: weight)


@change
def a_parameter_that_the_optimizer_lost() -> Change:
    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def function(x: torch.Tensor) -> None:
        optimizer.zero_grad()
        model(x).pow(2).sum().backward()
        optimizer.step()

    return Change(function, rows, lambda: optimizer.param_groups[0]["params"].pop(), lambda: list(model.parameters()))


@change
def an_average_over_all_batches() -> Change:
    layer = torch.nn.BatchNorm1d(3, momentum=None)
    return Change(lambda x: layer(x).detach(), rows, state=lambda: list(layer.buffers()))


@change
def a_generator_that_is_returned() -> Change:
    def function(x: torch.Tensor) -> Any:
        return (part * 2 for part in x.unbind())

    return Change(function, one, state=lambda: None)


@change
def an_iterator_that_is_returned() -> Change:
    return Change(lambda x: {"parts": map(torch.sin, x.unbind())}, one)


@change
def a_function_that_is_returned() -> Change:
    def function(x: torch.Tensor) -> Any:
        double = x * 2
        return lambda: double + 1

    return Change(function, one)


@change
def a_backward_that_is_returned() -> Change:
    return Change(lambda x: torch.func.vjp(torch.sin, x), one)


@replayed
def a_pair_for_a_look() -> Change:
    cache: dict[str, Any] = {"pair": None}
    seen: list[Any] = []

    def function(x: torch.Tensor) -> torch.Tensor:
        cache["pair"] = (x * 2, {"half": x / 2}, "text")
        seen.append([x + 1, 3])
        return x + 1

    return Change(function, one, state=lambda: [cache, seen])
