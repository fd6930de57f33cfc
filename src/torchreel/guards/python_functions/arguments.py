"""What a function of C may do with its arguments: iterate them, look into them, call them."""

from __future__ import annotations

import functools
import itertools
import types
from typing import TYPE_CHECKING, Any

import torch

from torchreel._graphs import NULL, type_lookup
from torchreel.guards import operations, tensors
from torchreel.guards.eager import EagerError
from torchreel.guards.types_known import PLAIN, is_python_class

if TYPE_CHECKING:
    from torchreel.guards.followed_call import FollowedCall

PYTHON = (types.FunctionType, types.MethodType)


def is_python(function: Any) -> bool:
    """Whether what C code does when it calls this is followed."""
    while isinstance(function, types.MethodType):
        function = function.__func__
    return isinstance(function, types.FunctionType)


def _is_callback(value: Any) -> bool:
    """Whether C code that is given this can call it and nothing is seen of that."""
    if isinstance(value, type) or not callable(value) or is_python(value):
        return False
    return not (is_python_class(type(value)) and is_python(type_lookup(type(value), "__call__")))


def is_followed(call: FollowedCall, function: Any) -> bool:
    """Whether a call of it only runs Python, which is followed."""
    if type(function) is functools.partial:
        if call.is_outer(function):
            for name in ("func", "args", "keywords"):
                call.checks.member(function, functools.partial.__dict__[name], getattr(function, name))
            call.guard_whole(function.keywords)
        return is_followed(call, function.func)
    if is_python_class(type(function)) and is_python(type_lookup(type(function), "__call__")):
        call.guard_class(function)
        return True
    return is_python(function)


def look_at(call: FollowedCall, value: Any) -> None:
    """An argument of a pure function: iterated, or looked at as a whole; a function of Python is followed."""
    if isinstance(value, torch.Tensor):
        tensors.bind(call, value)
    elif type_lookup(type(value), "__next__") is not NULL:
        operations.iterate(call, value)
        _look_inside(call, value)
    elif is_python(value):
        pass
    elif isinstance(value, (set, frozenset)) and not call.is_outer(value):
        operations.iterate(call, value)  # its order may show
        call.deep(value)
    elif isinstance(value, type) and value not in PLAIN:
        raise EagerError("hands a class to a function of C")
    elif _is_callback(value):
        raise EagerError("hands a function of C to a function of C")
    else:
        call.deep(value)


_GIVES_BACK = (map, types.GeneratorType, itertools.starmap)  # what Python hands to them is seen when it does


def _look_inside(call: FollowedCall, iterator: Any) -> None:
    """The items that an iterator of C has still to give, which C code looks at."""
    if isinstance(iterator, _GIVES_BACK) or is_python_class(type(iterator)):
        return
    if type(iterator).__module__ not in ("builtins", "itertools", "collections"):
        raise EagerError(f"hands a {type(iterator).__name__} to a function of C")
    todo = list(iterator.__reduce__())
    while todo:
        part = todo.pop()
        if type_lookup(type(part), "__next__") is not NULL:
            _look_inside(call, part)
        elif type(part) is tuple:
            todo.extend(part)
        elif not callable(part):
            call.deep(part)


def looks(call: FollowedCall) -> None:
    """From now on, what Python hands back to the C code that is called here is looked at."""
    if call.frame is not None:
        call.looking[id(call.frame)] = call.frame.f_lasti
