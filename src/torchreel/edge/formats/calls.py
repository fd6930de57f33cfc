"""Ways to see the calls of an object, for adapters: a method of one object, or what happens when it is called."""

from __future__ import annotations

import functools
from typing import Any

from torchreel.edge.formats.adapter import Calls, Undo


def watch_method(owner: Any, name: str, calls: Calls) -> Undo:
    """Tell each call of this one object's method. Other objects of its class stay as they are."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def told(*args: Any, **kwargs: Any) -> Any:
        calls.enter()
        try:
            return original(*args, **kwargs)
        finally:
            calls.leave()

    had_own = name in vars(owner)
    setattr(owner, name, told)

    def undo() -> None:
        if had_own:
            setattr(owner, name, original)
        else:
            delattr(owner, name)

    return undo


def watch_call(owner: Any, calls: Calls) -> Undo:
    """Tell each call of this one object: Python looks __call__ up in the class, so it gets a class of its own."""
    original = type(owner)

    def told(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls.enter()
        try:
            return original.__call__(self, *args, **kwargs)
        finally:
            calls.leave()

    watched = type(original.__name__, (original,), {"__call__": told, "__module__": original.__module__})
    owner.__class__ = watched

    def undo() -> None:
        owner.__class__ = original

    return undo
