"""Where programs are entered, and the changes that many of them have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from tests.graphs.guards.lockstep import Case, Change

_GONE = object()


@dataclass(frozen=True)
class Kind:
    """One kind of thing that Python can read, write or do."""

    make: Callable[[], Case]
    replays: bool  # and must: eager is no way out for it
    brief: bool  # one of a long row of its like: changed late only


KINDS: dict[str, Kind] = {}
Factory = Callable[[], Any]


def enter(name: str, factory: Factory, replays: bool = False, brief: bool = False) -> None:
    """A factory gives a `Case`, or a function with the changes between its calls."""
    assert name not in KINDS, f"there are two programs called {name!r}"

    def make() -> Case:
        made = factory()
        if isinstance(made, Case):
            return made
        function, *changes = made if isinstance(made, tuple) else (made,)
        return Case(function, changes)

    KINDS[name] = Kind(make, replays, brief)


def kind(factory: Factory) -> Factory:
    enter(factory.__name__.replace("_", " "), factory)
    return factory


def replayed(factory: Factory) -> Factory:
    """Nothing stands against a replay of these: they must not be left to eager."""
    enter(factory.__name__.replace("_", " "), factory, replays=True)
    return factory


class Box:
    """An object with attributes, made by a class of Python."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


def attribute(holder: Any, name: str, value: Any) -> Change:
    before = getattr(holder, name, _GONE)
    return Change(
        lambda: setattr(holder, name, value),
        lambda: delattr(holder, name) if before is _GONE else setattr(holder, name, before),
    )


def item(holder: Any, key: Any, value: Any) -> Change:
    try:
        before = holder[key]
    except (KeyError, IndexError):
        return Change(lambda: holder.__setitem__(key, value), lambda: holder.__delitem__(key))
    return Change(lambda: holder.__setitem__(key, value), lambda: holder.__setitem__(key, before))


def grown(holder: Any, value: Any) -> Change:
    """A list or deque with one thing more."""
    return Change(lambda: holder.append(value), holder.pop)


def patched(holder: Any, name: str, value: Any) -> Change:
    """An attribute that belongs to the process: the original is put back as it was, also in a class."""
    before = vars(holder)[name]
    return Change(lambda: setattr(holder, name, value), lambda: setattr(holder, name, before))


def backward(out: Any) -> None:
    """What a caller does who trains."""
    outs = out if isinstance(out, tuple | list) else [out]
    loss = sum(one.float().pow(2).sum() for one in outs if isinstance(one, torch.Tensor) and one.requires_grad)
    if isinstance(loss, torch.Tensor):
        loss.backward()
