"""Objects that go, and others that come to lie where they lay: nothing may be known by its address alone.

The changes here keep nothing of the old state alive, so that memory is used again.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import torch

from tests.graphs.guards.kinds.registry import Box, enter, kind
from tests.graphs.guards.lockstep import Case, Change, Given, sample

Tensor = torch.Tensor


def _anew(put: Callable[[float], Any], clear: Callable[[], Any], first: float = 1.5, other: float = 5.5) -> Change:
    """The old value goes before the new one is made."""

    def replaced(value: float) -> Callable[[], None]:
        def change() -> None:
            clear()
            put(value)

        return change

    return Change(replaced(other), replaced(first))


class _Slots:
    __slots__ = ("k",)

    def __init__(self, k: float) -> None:
        self.k = k


# What is put, made of a number; and how the function gets the number back.
_MADE: dict[str, tuple[Callable[[float], Any], Callable[[Any], float]]] = {
    "number": (lambda k: k * 1.0, lambda one: one),
    "big int": (lambda k: int(k * 2**40), lambda one: one / 2**40),
    "text": (lambda k: f"{k:.1f}", lambda one: float(one)),
    "tuple": (lambda k: (k, "a"), lambda one: one[0]),
    "list": (lambda k: [k], lambda one: one[0]),
    "dict": (lambda k: {"k": k}, lambda one: one["k"]),
    "object": (lambda k: Box(k=k), lambda one: one.k),
    "object with slots": (_Slots, lambda one: one.k),
    "function": (lambda k: lambda: k, lambda one: one()),
    "class": (lambda k: type("Made", (), {"k": k}), lambda one: one.k),
    "bound method": (lambda k: Box(k=k, get=lambda: k).get, lambda one: one()),
    "set": (lambda k: {k}, lambda one: next(iter(one))),
    "nested list": (lambda k: [[k]], lambda one: one[0][0]),
    "tensor": (lambda k: torch.full((3,), k), lambda one: one),
    "parameter": (lambda k: torch.nn.Parameter(torch.full((3,), k)), lambda one: one),
    "module": (lambda k: torch.nn.Dropout(k / 10), lambda one: one.p),
}


def _of_an_attribute(make: Callable[[float], Any], read: Callable[[Any], Any]) -> Case:
    box = Box(one=make(1.5))
    change = _anew(lambda k: setattr(box, "one", make(k)), lambda: delattr(box, "one"))
    return Case(lambda x: x * read(box.one), [change])


def _of_an_item(make: Callable[[float], Any], read: Callable[[Any], Any]) -> Case:
    held = [make(1.5)]
    change = _anew(lambda k: held.append(make(k)), held.clear)
    return Case(lambda x: x * read(held[0]), [change])


def _of_an_argument(make: Callable[[float], Any], read: Callable[[Any], Any]) -> Case:
    """Each call is given one of its own, and the one before is gone."""
    return Case(lambda x, one: x * read(one), given=lambda n: Given(sample(n), make(0.5 + n // 4)))


for _name, (_make, _read) in _MADE.items():
    enter(f"{_name} in the place of another, as an attribute", lambda m=_make, r=_read: _of_an_attribute(m, r))
    enter(f"{_name} in the place of another, as an item", lambda m=_make, r=_read: _of_an_item(m, r))
    enter(f"{_name} in the place of another, as an argument", lambda m=_make, r=_read: _of_an_argument(m, r))


@kind
def whole_tree_in_the_place_of_another() -> Any:
    held: list[Any] = []

    def grow(k: float) -> None:
        held.append(Box(parts=[Box(k=k), {"k": k, "deep": [(k, [k])]}]))

    def clear() -> None:
        held.clear()
        gc.collect()

    grow(1.5)

    def function(x: Tensor) -> Tensor:
        first, second = held[0].parts
        return x * first.k + second["k"] * second["deep"][0][1][0]

    return Case(function, [_anew(grow, clear)])


@kind
def function_itself_made_anew_behind_a_name() -> Any:
    space: dict[str, Any] = {}

    def define(k: float) -> None:
        exec(f"def helper(x):\n    return x * {k}\n", space)

    define(1.5)
    return Case(lambda x: space["helper"](x), [_anew(define, lambda: space.pop("helper"))])


@kind
def class_defined_anew_behind_a_name() -> Any:
    space: dict[str, Any] = {}

    def define(k: float) -> None:
        exec(f"class Made:\n    k = {k}\n    def times(self, x):\n        return x * self.k\n", space)

    def clear() -> None:
        del space["Made"]
        gc.collect()

    define(1.5)
    return Case(lambda x: space["Made"]().times(x), [_anew(define, clear)])


@kind
def model_made_anew_in_the_place_of_another() -> Any:
    box = Box(model=torch.nn.Linear(3, 3))

    def make(k: float) -> None:
        box.model = torch.nn.Linear(3, 3)
        torch.nn.init.constant_(box.model.weight, k)

    def clear() -> None:
        del box.model
        gc.collect()

    return Case(lambda x: box.model(x), [_anew(make, clear)], observe=lambda: box.model)


@kind
def optimizer_made_anew_in_the_place_of_another() -> Any:
    model = torch.nn.Linear(3, 1)
    box = Box(optimizer=torch.optim.SGD(model.parameters(), lr=0.15))

    def make(k: float) -> None:
        box.optimizer = torch.optim.SGD(model.parameters(), lr=k / 10)

    def clear() -> None:
        del box.optimizer
        gc.collect()

    def step(x: Tensor) -> Tensor:
        box.optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        box.optimizer.step()
        return loss.detach()

    return Case(step, [_anew(make, clear)], observe=lambda: model)


@kind
def tensor_of_state_at_the_same_address() -> Any:
    box = Box(w=torch.full((1024,), 1.5))
    change = _anew(lambda k: setattr(box, "w", torch.full((1024,), k)), lambda: delattr(box, "w"))
    return Case(lambda x: x * box.w[:3].sum(), [change])


@kind
def object_that_is_gone_and_none_in_its_place() -> Any:
    box = Box(one=Box(k=1.5))

    def function(x: Tensor) -> Tensor:
        one = getattr(box, "one", None)
        return x * (9.0 if one is None else one.k)

    return Case(function, [Change(lambda: delattr(box, "one"), lambda: setattr(box, "one", Box(k=2.5)))])


@kind
def graphed_function_outlives_what_it_read() -> Any:
    """The last reference goes while there is a recording, and something else is read from then on."""
    table: dict[str, Any] = {"now": Box(k=1.5), "next": Box(k=2.5)}

    def forward() -> None:
        table["now"] = table.pop("next")
        table["next"] = Box(k=table["now"].k + 1)

    return Case(lambda x: x * table["now"].k, [Change(forward, forward), Change(forward, forward)])
