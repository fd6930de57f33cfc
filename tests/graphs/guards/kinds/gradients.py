"""Where gradients and parameters lie: shared, swapped, flat, of other layouts, put and taken away by others."""

from __future__ import annotations

import collections
import copy
from typing import Any

import torch
from torch import nn

from tests.graphs.guards.kinds.registry import Box, attribute, backward, kind
from tests.graphs.guards.lockstep import Case, Change, Given, sample

Tensor = torch.Tensor


def _batch(number: int) -> Given:
    return Given(sample(number, 2, 3))


def _inside(model: nn.Module, clears: bool = False) -> Any:
    """A forward and a backward in one call."""

    def function(x: Tensor) -> Tensor:
        if clears:
            model.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        return loss.detach()

    return function


def _case(model: nn.Module, *changes: Change, inside: bool = True, **more: Any) -> Case:
    function = more.pop("function", None) or (_inside(model, more.pop("clears", False)) if inside else model)
    use = more.pop("use", (lambda out: None) if inside else backward)
    return Case(function, list(changes), given=_batch, use=use, observe=lambda: model, **more)


def _put_gradients(model: nn.Module, make: Any) -> Any:
    def put() -> None:
        for p in model.parameters():
            p.grad = make(p)

    return put


def _both(make: Any) -> None:
    """The same change before a backward inside of the call and before one outside."""
    for inside in (True, False):

        def factory(inside: bool = inside) -> Any:
            return make(inside)

        factory.__name__ = f"{make.__name__}{'_inside' if inside else '_outside'}"
        kind(factory)


def _tree() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


@_both
def gradients_taken_away(inside: bool) -> Any:
    model = _tree()
    return _case(model, Change(model.zero_grad, model.zero_grad), inside=inside)


@_both
def gradients_of_zeros(inside: bool) -> Any:
    model = _tree()
    return _case(model, Change(_put_gradients(model, torch.zeros_like), model.zero_grad), inside=inside)


@_both
def gradients_of_another_layout(inside: bool) -> Any:
    model = _tree()
    flip = lambda p: torch.ones(p.shape[::-1]).t() if p.dim() == 2 else torch.ones_like(p)  # noqa: E731
    return _case(model, Change(_put_gradients(model, flip), model.zero_grad), inside=inside)


@_both
def gradients_in_one_flat_buffer(inside: bool) -> Any:
    model = _tree()
    flat = torch.zeros(sum(p.numel() for p in model.parameters()))

    def put() -> None:
        start = 0
        for p in model.parameters():
            p.grad = flat[start : start + p.numel()].view_as(p)
            start += p.numel()

    return Case(
        _inside(model) if inside else model,
        [Change(put, model.zero_grad)],
        given=_batch,
        use=(lambda out: None) if inside else backward,
        observe=lambda: (model, flat),
    )


def one_gradient_for_two_parameters(inside: bool) -> Any:
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    shared = torch.zeros(3, 3)

    def put() -> None:
        for p in model.parameters():
            p.grad = shared

    return _case(model, Change(put, model.zero_grad), inside=inside)


@kind
def one_gradient_for_two_parameters_inside() -> Any:
    """With a backward outside of the call, the order of the two additions may be another one than eager's."""
    return one_gradient_for_two_parameters(True)


@_both
def gradient_of_one_parameter_missing(inside: bool) -> Any:
    model = _tree()
    first: Any = model[0]  # type: ignore[index]
    return _case(model, Change(lambda: setattr(first.weight, "grad", None)), inside=inside)


@_both
def gradient_that_the_caller_holds(inside: bool) -> Any:
    model, held = _tree(), []  # type: ignore[var-annotated]

    def hold() -> None:
        held.extend(p.grad for p in model.parameters())
        model.zero_grad()

    return Case(
        _inside(model) if inside else model,
        [Change(hold, hold)],
        given=_batch,
        use=(lambda out: None) if inside else backward,
        observe=lambda: (model, held),
    )


@_both
def parameters_that_exchange_their_data(inside: bool) -> Any:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    a, b = model[0].weight, model[1].weight

    def exchanged() -> None:
        a.data, b.data = b.data, a.data

    return _case(model, Change(exchanged, exchanged), inside=inside)


@_both
def parameters_of_a_module_put_by_hand(inside: bool) -> Any:
    model = _tree()
    last: Any = model[2]  # type: ignore[index]
    before = last._parameters
    other = {"weight": nn.Parameter(torch.ones(2, 4)), "bias": None}
    return _case(
        model,
        Change(lambda: setattr(last, "_parameters", other), lambda: setattr(last, "_parameters", before)),
        inside=inside,
    )


@_both
def children_of_a_module_put_by_hand(inside: bool) -> Any:
    model = _tree()
    before = model._modules
    turned = collections.OrderedDict([("0", nn.Linear(3, 2)), ("1", nn.Sigmoid())])
    return _case(
        model,
        Change(lambda: setattr(model, "_modules", turned), lambda: setattr(model, "_modules", before)),
        inside=inside,
    )


@_both
def weight_that_is_a_view_of_another(inside: bool) -> Any:
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    first, second = model[0].weight, model[1].weight
    before = second.data

    def shared() -> None:
        second.data = first.data.t()

    return _case(model, Change(shared, lambda: setattr(second, "data", before)), inside=inside)


@_both
def weight_that_requires_no_gradient_at_times(inside: bool) -> Any:
    model = _tree()
    first: Any = model[0]  # type: ignore[index]
    return _case(
        model,
        Change(lambda: first.weight.requires_grad_(False), lambda: first.weight.requires_grad_(True)),
        inside=inside,
    )


@_both
def module_copied_and_put_back(inside: bool) -> Any:
    model = nn.Sequential(_tree(), nn.Tanh())
    return _case(model, Change(lambda: model.__setitem__(0, copy.deepcopy(model[0]))), inside=inside)


@_both
def weight_written_in_place(inside: bool) -> Any:
    model = _tree()
    first: Any = model[0]  # type: ignore[index]
    write = lambda k: lambda: first.weight.data.mul_(k)  # noqa: E731
    return _case(model, Change(write(2.0), write(0.5)), inside=inside)


@_both
def memory_format_of_a_weight_changed(inside: bool) -> Any:
    model = _tree()
    first: Any = model[0]  # type: ignore[index]

    def turned() -> None:
        first.weight.data = first.weight.data.t().contiguous().t()

    def back() -> None:
        first.weight.data = first.weight.data.contiguous()

    return _case(model, Change(turned, back), inside=inside)


@kind
def gradient_cleared_by_the_function_at_times() -> Any:
    model, box = _tree(), Box(clears=True)

    def function(x: Tensor) -> Tensor:
        if box.clears:
            model.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        return loss.detach()

    return Case(function, [attribute(box, "clears", False)], given=_batch, observe=lambda: model)


@kind
def gradient_scaled_in_place_by_the_function() -> Any:
    model, box = _tree(), Box(k=0.5)

    def function(x: Tensor) -> Tensor:
        model.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        for p in model.parameters():
            p.grad.mul_(box.k)  # type: ignore[union-attr]
        return loss.detach()

    return Case(function, [attribute(box, "k", 2.0)], given=_batch, observe=lambda: model)


@kind
def gradient_replaced_by_the_function() -> Any:
    model = _tree()

    def function(x: Tensor) -> Tensor:
        model.zero_grad()
        model(x).pow(2).mean().backward()
        for p in model.parameters():
            p.grad = p.grad.clone().sign()  # type: ignore[union-attr]
        return x + 1

    return Case(function, given=_batch, observe=lambda: model)


@kind
def gradient_set_to_none_by_the_function() -> Any:
    model = _tree()

    def function(x: Tensor) -> Tensor:
        model(x).pow(2).mean().backward()
        norms = torch.stack([p.grad.norm() for p in model.parameters()])  # type: ignore[union-attr]
        for p in model.parameters():
            p.grad = None
        return norms

    return Case(function, [Change(_put_gradients(model, torch.ones_like))], given=_batch, observe=lambda: model)


@kind
def gradients_by_autograd_grad() -> Any:
    model, box = _tree(), Box(lr=0.1)

    def function(x: Tensor) -> Tensor:
        loss = model(x).pow(2).mean()
        found = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for p, slope in zip(model.parameters(), found, strict=True):
                p.sub_(slope, alpha=box.lr)
        return loss.detach()

    return Case(function, [attribute(box, "lr", 0.01)], given=_batch, observe=lambda: model)


@kind
def gradient_of_an_argument_inside() -> Any:
    def given(number: int) -> Given:
        x = sample(number).requires_grad_()
        if number % 3 == 2:
            x.grad = torch.ones(3)
        return Given(x)

    def function(x: Tensor) -> Any:
        (x * x).sum().backward()
        return x.grad

    return Case(function, given=given)


@kind
def argument_kept_over_calls_that_gathers_gradients() -> Any:
    x = sample(0).requires_grad_()

    def function(x: Tensor) -> Tensor:
        (x * x).sum().backward()
        return x.detach() * 2

    return Case(function, [Change(lambda: setattr(x, "grad", None))], given=lambda n: Given(x))


@kind
def loss_that_depends_on_earlier_gradients() -> Any:
    model = _tree()

    def function(x: Tensor) -> Tensor:
        penalty = sum(p.grad.norm() for p in model.parameters() if p.grad is not None)
        model.zero_grad()
        loss = model(x).pow(2).mean() + penalty
        loss.backward()
        return loss.detach()

    return Case(function, [Change(model.zero_grad)], given=_batch, observe=lambda: model)


@kind
def one_of_several_outputs_is_used() -> Any:
    model, box = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5)), Box(which=0)

    def function(x: Tensor) -> Any:
        y = model(x)
        return [y, y * 2 if x.sum() > 0 else y.sin(), y.detach()]

    def use(out: Any) -> None:
        out[box.which].pow(2).sum().backward()

    return Case(function, [attribute(box, "which", 1)], given=_batch, use=use, observe=lambda: model)


@kind
def dropout_and_a_branch_on_a_value() -> Any:
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5))

    def function(x: Tensor) -> Any:
        if x.sum() > 0.5:
            with torch.no_grad():
                w = x * 0.5
            return [x + w, (x, None)]
        y = model(x)
        return [y, (y * 2, None)]

    return Case(function, given=_batch, use=backward, observe=lambda: model)
