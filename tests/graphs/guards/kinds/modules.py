"""Modules: what they hold, how it is replaced, and hooks of all kinds."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as all_modules

from tests.graphs.guards.kinds.registry import Box, attribute, backward, item, kind
from tests.graphs.guards.lockstep import Case, Change, Given, sample

Tensor = torch.Tensor


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout(0.5)
        self.last = nn.Linear(4, 2)
        self.scale = 1.0

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.drop(self.norm(self.first(x)).relu())) * self.scale  # type: ignore[no-any-return]


def _trained(model: nn.Module, *changes: Change, **more: Any) -> Case:
    """Called on a batch, with a backward outside."""
    observe = more.pop("observe", None)
    return Case(
        more.pop("function", model),
        list(changes),
        given=lambda n: Given(sample(n, 2, 3)),
        use=more.pop("use", backward),
        observe=lambda: (model, observe() if observe else None),
        **more,
    )


def _hooked(register: Any, *args: Any, **kwargs: Any) -> Change:
    """A hook that is there between the change and the change back."""
    handles: list[Any] = []
    return Change(lambda: handles.append(register(*args, **kwargs)), lambda: handles.pop().remove())


@kind
def training_or_evaluation() -> Any:
    model = Net()
    return _trained(model, Change(model.eval, model.train), Change(model.drop.eval, model.drop.train))


@kind
def probability_and_momentum() -> Any:
    model = Net()
    return _trained(model, attribute(model.drop, "p", 0.1), attribute(model.norm, "momentum", 0.3))


@kind
def parameter_replaced() -> Any:
    model = Net()
    return _trained(model, attribute(model.last, "weight", nn.Parameter(torch.ones(2, 4))))


@kind
def parameter_removed() -> Any:
    model = Net()
    bias = model.last.bias
    return _trained(model, Change(lambda: setattr(model.last, "bias", None), lambda: setattr(model.last, "bias", bias)))


@kind
def buffer_replaced() -> Any:
    model = Net().eval()
    mean = model.norm.running_mean
    other = torch.full((4,), 2.0)
    return _trained(model, Change(lambda: _put(model.norm, other), lambda: _put(model.norm, mean)))


def _put(norm: Any, value: Any) -> None:
    norm.running_mean = value


@kind
def buffer_registered_later() -> Any:
    class Shifted(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + getattr(self, "shift", 0.0) * 2

    model = Shifted()
    put = lambda: model.register_buffer("shift", torch.ones(3))  # noqa: E731
    return _trained(model, Change(put, lambda: delattr(model, "shift")))


@kind
def parameter_registered_later() -> Any:
    class Scaled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            for _, value in self.named_parameters():
                x = x * value
            return x

    model = Scaled()
    put = lambda: model.register_parameter("k", nn.Parameter(torch.full((3,), 2.0)))  # noqa: E731
    return _trained(model, Change(put, lambda: delattr(model, "k")))


@kind
def submodule_replaced() -> Any:
    model = Net()
    return _trained(model, attribute(model, "drop", nn.Identity()), attribute(model, "norm", nn.LayerNorm(4)))


@kind
def module_list_grown() -> Any:
    class Deep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(2)])

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = layer(x).relu()
            return x

    model = Deep()
    more = nn.Linear(3, 3)
    return _trained(model, Change(lambda: model.layers.append(more), lambda: model.layers.__delitem__(-1)))


@kind
def module_dict_reordered() -> Any:
    class Steps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.steps = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.Tanh()})

        def forward(self, x: Tensor) -> Tensor:
            for step in self.steps.values():
                x = step(x)
            return x

    model = Steps()

    def moved() -> None:
        model.steps._modules["a"] = model.steps._modules.pop("a")

    def back() -> None:
        model.steps._modules["b"] = model.steps._modules.pop("b")

    return _trained(model, Change(moved, back))


@kind
def sequential_that_is_changed() -> Any:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2))
    return _trained(model, item(model, 1, nn.Tanh()))


@kind
def frozen_later() -> Any:
    model = Net()
    return _trained(
        model,
        Change(lambda: model.requires_grad_(False), lambda: model.requires_grad_(True)),
        Change(lambda: model.first.requires_grad_(False), lambda: model.first.requires_grad_(True)),
    )


@kind
def converted_to_double() -> Any:
    model = nn.Linear(3, 2)
    double = Box(on=False)

    def given(number: int) -> Given:
        return Given(sample(number, 2, 3).double() if double.on else sample(number, 2, 3))

    def do() -> None:
        model.double()
        double.on = True

    def undo() -> None:
        model.float()
        double.on = False

    return Case(model, [Change(do, undo)], given=given, use=backward, observe=lambda: model)


@kind
def state_dict_loaded() -> Any:
    model = Net()
    other = {name: value.clone() * 2 + 1 for name, value in model.state_dict().items()}
    return _trained(
        model,
        Change(lambda: model.load_state_dict(other)),
        Change(lambda: model.load_state_dict(other | {"first.bias": torch.ones(4)}, assign=True)),
    )


@kind
def setattr_of_a_module_class() -> Any:
    class Noted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(3, 2)
            self.noted: list[str] = []

        def __setattr__(self, name: str, value: Any) -> None:
            if "noted" in self.__dict__:
                self.__dict__["noted"].append(name)
            super().__setattr__(name, value)

        def forward(self, x: Tensor) -> Tensor:
            self.last = x
            return self.inner(x)  # type: ignore[no-any-return]

    model = Noted()
    return _trained(model, observe=lambda: (model.noted, model.__dict__.get("last")))


@kind
def getattr_of_a_module_class() -> Any:
    class Lazy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = {"k": 1.0}

        def __getattr__(self, name: str) -> Any:
            return self.table[name] if name == "k" else super().__getattr__(name)

        def forward(self, x: Tensor) -> Tensor:
            return x * self.k

    model = Lazy()
    return _trained(model, item(model.table, "k", 5.0))


@kind
def forward_of_an_instance_replaced() -> Any:
    model = Net()
    change = Change(lambda: setattr(model.norm, "forward", lambda x: x * 5), lambda: delattr(model.norm, "forward"))
    return _trained(model, change)


@kind
def class_of_a_module_replaced() -> Any:
    model = nn.Sequential(nn.ReLU(), nn.Linear(3, 2))
    return _trained(model, attribute(model[0], "__class__", nn.Tanh))


@kind
def forward_hook() -> Any:
    model = Net()
    return _trained(model, _hooked(model.norm.register_forward_hook, lambda m, args, out: out * 2))


@kind
def forward_hook_with_state() -> Any:
    model, box = Net(), Box(k=1.0)
    model.norm.register_forward_hook(lambda m, args, out: out * box.k)
    return _trained(model, attribute(box, "k", 5.0))


@kind
def forward_pre_hook_with_keywords() -> Any:
    class Inner(nn.Module):
        def forward(self, x: Tensor, by: float = 1.0) -> Tensor:
            return x * by

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x, by=2.0)  # type: ignore[no-any-return]

    model = Outer()
    hook = lambda m, args, kwargs: (args, {"by": 5.0})  # noqa: E731
    return _trained(model, _hooked(model.inner.register_forward_pre_hook, hook, with_kwargs=True))


@kind
def forward_hook_that_keeps_a_feature() -> Any:
    model, features = Net(), {}  # type: ignore[var-annotated]
    model.first.register_forward_hook(lambda m, args, out: features.__setitem__("first", out))
    return _trained(model, observe=lambda: features)


@kind
def forward_hook_that_keeps_features_later() -> Any:
    model, features = Net(), []  # type: ignore[var-annotated]
    hook = lambda m, args, out: features.append(out.detach())  # noqa: E731
    return _trained(model, _hooked(model.first.register_forward_hook, hook), observe=lambda: features)


@kind
def forward_hook_that_counts() -> Any:
    model, seen = Net(), []  # type: ignore[var-annotated]
    model.first.register_forward_hook(lambda m, args, out: seen.append(tuple(out.shape)))
    return _trained(model, observe=lambda: seen)


@kind
def forward_hook_of_all_modules() -> Any:
    model = Net()
    hook = lambda m, args, out: out * 2 if isinstance(m, nn.BatchNorm1d) else None  # noqa: E731
    return _trained(model, _hooked(all_modules.register_module_forward_hook, hook))


@kind
def forward_pre_hook_of_all_modules() -> Any:
    model, seen = Net(), []  # type: ignore[var-annotated]
    hook = lambda m, args: seen.append(type(m).__name__)  # noqa: E731
    return _trained(model, _hooked(all_modules.register_module_forward_pre_hook, hook), observe=lambda: seen)


@kind
def hook_at_a_registration_of_parameters() -> Any:
    seen: list[str] = []

    def function(x: Tensor) -> Tensor:
        layer = nn.Linear(3, 2, bias=False)
        return (layer(x) * 0).detach()

    hook = lambda m, name, value: seen.append(name)  # noqa: E731
    change = _hooked(all_modules.register_module_parameter_registration_hook, hook)
    return Case(function, [change], observe=lambda: seen)


@kind
def full_backward_hook() -> Any:
    model = Net()
    return _trained(model, _hooked(model.last.register_full_backward_hook, lambda m, gi, go: (gi[0] * 2,)))


@kind
def full_backward_pre_hook() -> Any:
    model = Net()
    return _trained(model, _hooked(model.last.register_full_backward_pre_hook, lambda m, go: (go[0] * 2,)))


@kind
def full_backward_hook_that_stores() -> Any:
    model, seen = Net(), []  # type: ignore[var-annotated]
    model.last.register_full_backward_hook(lambda m, gi, go: seen.append(go[0].clone()))
    return _trained(model, observe=lambda: seen)


@kind
def full_backward_hook_that_asks_for_a_number() -> Any:
    model, seen = Net(), []  # type: ignore[var-annotated]
    model.last.register_full_backward_hook(lambda m, gi, go: seen.append(go[0].sum().item()))
    return _trained(model, observe=lambda: seen)


@kind
def full_backward_hook_that_asks_for_a_number_inside() -> Any:
    model, seen = Net(), []  # type: ignore[var-annotated]
    model.last.register_full_backward_hook(lambda m, gi, go: seen.append(go[0].sum().item()))

    def function(x: Tensor) -> Tensor:
        model.zero_grad()
        model(x).pow(2).sum().backward()
        return x + 1

    return _trained(model, function=function, observe=lambda: seen)


@kind
def hook_of_a_parameter() -> Any:
    model = Net()
    return _trained(model, _hooked(model.last.weight.register_hook, lambda gradient: gradient * 2))


@kind
def hook_of_a_parameter_that_is_there() -> Any:
    model = Net()
    model.last.weight.register_hook(lambda gradient: gradient * 2)
    return _trained(model)


@kind
def hook_of_a_parameter_that_is_there_inside() -> Any:
    model = Net()
    model.last.weight.register_hook(lambda gradient: gradient * 2)

    def function(x: Tensor) -> Tensor:
        model.zero_grad()
        model(x).pow(2).sum().backward()
        return x + 1

    return _trained(model, function=function)


@kind
def hook_of_a_parameter_added_inside_of_a_step() -> Any:
    model = Net()

    def function(x: Tensor) -> Tensor:
        model.zero_grad()
        model(x).pow(2).sum().backward()
        return x + 1

    hook = _hooked(model.last.weight.register_hook, lambda gradient: gradient * 2)
    return _trained(model, hook, function=function)


@kind
def hook_of_a_parameter_with_state() -> Any:
    model, box = Net(), Box(k=1.0)
    model.last.weight.register_hook(lambda gradient: gradient * box.k)
    return _trained(model, attribute(box, "k", 5.0))


@kind
def hook_of_a_parameter_that_stores() -> Any:
    model, seen = Net(), []  # type: ignore[var-annotated]
    model.last.weight.register_hook(lambda gradient: seen.append(gradient.norm().item()))
    return _trained(model, observe=lambda: seen)


@kind
def hook_of_a_parameter_that_stores_inside() -> Any:
    model, seen = Net(), []  # type: ignore[var-annotated]
    model.last.weight.register_hook(lambda gradient: seen.append(gradient.clone()))

    def function(x: Tensor) -> Tensor:
        model.zero_grad()
        model(x).pow(2).sum().backward()
        return x + 1

    return _trained(model, function=function, observe=lambda: seen)


@kind
def hook_after_the_accumulation() -> Any:
    model, seen = Net(), []  # type: ignore[var-annotated]

    def stepped(p: Tensor) -> None:
        seen.append(1)
        with torch.no_grad():
            p.sub_(p.grad, alpha=0.1)
        p.grad = None

    model.last.weight.register_post_accumulate_grad_hook(stepped)
    return _trained(model, observe=lambda: seen)


@kind
def hook_after_the_accumulation_added_later() -> Any:
    model = Net()
    halve = lambda p: p.grad.mul_(0.5)  # noqa: E731
    return _trained(model, _hooked(model.last.weight.register_post_accumulate_grad_hook, halve))


@kind
def hook_of_a_result_inside() -> Any:
    model, seen = Net(), []  # type: ignore[var-annotated]

    def function(x: Tensor) -> Tensor:
        y = model.first(x)
        y.register_hook(lambda gradient: seen.append(gradient.sum().item()))
        return model.last(y.relu())  # type: ignore[no-any-return]

    return _trained(model, function=function, observe=lambda: seen)


@kind
def hook_of_a_result_that_changes_it() -> Any:
    model, box = Net(), Box(k=2.0)

    def function(x: Tensor) -> Tensor:
        y = model.first(x)
        y.register_hook(lambda gradient: gradient * box.k)
        return model.last(y.relu())  # type: ignore[no-any-return]

    return _trained(model, attribute(box, "k", 5.0), function=function)


@kind
def hook_of_an_argument() -> Any:
    model, box = Net(), Box(on=False)

    def given(number: int) -> Given:
        x = sample(number, 2, 3).requires_grad_()
        if box.on:
            x.register_hook(lambda gradient: gradient * 3)
        return Given(x)

    return Case(model, [attribute(box, "on", True)], given=given, use=backward, observe=lambda: model)


@kind
def hook_of_an_output_outside() -> Any:
    model = Net()

    def use(out: Tensor) -> Any:
        out.register_hook(lambda gradient: gradient * 3)
        out.retain_grad()
        out.pow(2).sum().backward()
        return out.grad

    return _trained(model, use=use)


@kind
def gradient_retained_inside() -> Any:
    model, kept = Net(), []  # type: ignore[var-annotated]

    def function(x: Tensor) -> Tensor:
        y = model.first(x)
        y.retain_grad()
        kept[:] = [y]
        return model.last(y)  # type: ignore[no-any-return]

    return _trained(model, function=function, observe=lambda: [one.grad for one in kept])


@kind
def hook_of_a_node() -> Any:
    model, seen = Net(), []  # type: ignore[var-annotated]

    def function(x: Tensor) -> Tensor:
        y = model.first(x)
        y.grad_fn.register_hook(lambda gi, go: seen.append(go[0].sum().item()))
        return model.last(y)  # type: ignore[no-any-return]

    return _trained(model, function=function, observe=lambda: seen)


@kind
def parametrization_added_later() -> Any:
    model = nn.Linear(3, 2)

    class Doubled(nn.Module):
        def forward(self, weight: Tensor) -> Tensor:
            return weight * 2

    parametrize = torch.nn.utils.parametrize
    return _trained(
        model,
        Change(
            lambda: parametrize.register_parametrization(model, "weight", Doubled()),
            lambda: parametrize.remove_parametrizations(model, "weight", leave_parametrized=False),
        ),
    )


@kind
def spectral_norm_that_counts() -> Any:
    model = torch.nn.utils.parametrizations.spectral_norm(nn.Linear(3, 2))
    return _trained(model, Change(model.eval, model.train))


@kind
def weight_norm_of_old() -> Any:
    model = torch.nn.utils.weight_norm(nn.Linear(3, 2))
    return _trained(model, observe=lambda: model.weight)


@kind
def weight_sharing() -> Any:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.b(self.a(x).relu())  # type: ignore[no-any-return]

    model = Tied()
    return _trained(model, attribute(model.b, "weight", model.a.weight))


@kind
def names_of_modules_that_decide() -> Any:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))

    def function(x: Tensor) -> Tensor:
        for name, layer in model.named_children():
            x = layer(x) if name != "skip" else x - 1
        return x

    more = nn.Linear(3, 3)
    return _trained(
        model, Change(lambda: model.add_module("skip", more), lambda: delattr(model, "skip")), function=function
    )


@kind
def state_that_a_module_keeps() -> Any:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.Linear(3, 3)
            self.hidden: Any = None

        def forward(self, x: Tensor) -> Tensor:
            before = 0.0 if self.hidden is None else self.hidden
            y = torch.tanh(self.cell(x) + before)
            self.hidden = y.detach()
            return y

    model = Recurrent()
    return _trained(model, Change(lambda: setattr(model, "hidden", None)), observe=lambda: model.hidden)


@kind
def buffer_replaced_at_each_call() -> Any:
    class Mean(nn.Module):
        mean: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            self.mean = self.mean * 0.9 + x.mean(0) * 0.1
            return x - self.mean

    return _trained(Mean())


@kind
def counter_in_a_buffer() -> Any:
    class Counted(nn.Module):
        steps: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("steps", torch.tensor(0))

        def forward(self, x: Tensor) -> Tensor:
            self.steps += 1
            return x * 2 if self.steps % 3 == 0 else x * self.steps

    return _trained(Counted())


@kind
def counter_of_a_module() -> Any:
    class Counted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.steps = 0

        def forward(module, x: Tensor) -> Tensor:  # noqa: N805
            module.steps += 1
            return x * 2 if module.steps % 3 == 0 else x

    model = Counted()
    return _trained(model, observe=lambda: model.steps)


@kind
def loss_kept_for_later() -> Any:
    class Mixture(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            y = self.inner(x)
            self.extra = y.pow(2).mean()
            return y

    model = Mixture()
    use = lambda out: (out.sum() + model.extra).backward()  # noqa: E731
    return _trained(model, use=use, observe=lambda: model.__dict__.get("extra"))


@kind
def functional_call_with_other_weights() -> Any:
    model = nn.Linear(3, 2)
    weights = {"weight": torch.ones(2, 3, requires_grad=True), "bias": torch.zeros(2)}

    def function(x: Tensor) -> Tensor:
        return torch.func.functional_call(model, weights, (x,))  # type: ignore[no-any-return]

    return _trained(model, item(weights, "bias", torch.ones(2)), function=function, observe=lambda: weights)


@kind
def module_passed_through_a_pool_of_experts() -> Any:
    experts = nn.ModuleList([nn.Linear(3, 3) for _ in range(3)])
    chosen = Box(places=[0, 2])

    def function(x: Tensor) -> Tensor:
        return sum(experts[place](x) for place in chosen.places)  # type: ignore[return-value]

    return _trained(experts, item(chosen.places, 1, 1), attribute(chosen, "places", [1]), function=function)
