"""How Python finds an attribute, and what setting one means."""

from __future__ import annotations

import functools
import threading
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy
import torch

from torchreel import _graphs
from torchreel._graphs import NULL, TensorState, type_lookup
from torchreel._torch.autograd import FunctionBase
from torchreel.guards import numpy_functions, tensors
from torchreel.guards.eager import EagerError, WriteError
from torchreel.guards.opaque import OPAQUE
from torchreel.guards.types_known import DESCRIPTORS, PLAIN, is_descriptor, is_python_class

if TYPE_CHECKING:
    from torchreel.guards.followed_call import FollowedCall

# Of a class, where the metaclass answers.
_OF_TYPES = frozenset(
    ("__name__", "__qualname__", "__module__", "__mro__", "__bases__", "__base__", "__doc__", "__flags__", "__class__",
     "__annotations__", "__dictoffset__", "__weakrefoffset__", "__basicsize__", "__itemsize__")
)  # fmt: skip
# Of a function: what its own check has, or what cannot be set.
_OF_FUNCTIONS = frozenset(("__code__", "__defaults__", "__kwdefaults__", "__closure__", "__globals__", "__builtins__"))
_ATTRIBUTES_OF_FUNCTIONS = frozenset(("__name__", "__qualname__", "__doc__", "__module__", "__annotations__"))
# C types whose objects cannot change, though they are not plain: attributes that are of the type itself are known.
_CONSTANT = (types.MethodType, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType,
             types.MethodWrapperType, types.GetSetDescriptorType, types.MemberDescriptorType, property, staticmethod,
             classmethod, functools.partial, torch.Generator, torch.autograd.graph.Node)  # fmt: skip


def read(call: FollowedCall, value: Any, name: str) -> Callable[[Any], object] | None:
    """value.name is about to be read. What Python code does about it (property, __getattr__) is followed by itself."""
    kind = type(value)
    if isinstance(value, type):
        return _read_of_type(call, value, name)
    if isinstance(value, _graphs.CachedCall) and type_lookup(kind, name) is NULL:
        raise EagerError(f"reads {name} of a graphed function")
    if kind is super:
        owner = value.__self__
        call.guard_type(owner if isinstance(owner, type) else type(owner))
        return _read_of_super(call, value, name)
    if kind is range and name in ("start", "stop", "step"):
        raise EagerError(f"reads {name} of a range")  # equal ones may have other ends
    call.guard_class(value)
    found = type_lookup(kind, name)
    if isinstance(value, torch.Tensor):
        if tensors.read(call, value, name, found):
            return _told_of_tensor(call, value, name)
        return None
    if kind is types.MethodType:
        return read(call, value.__func__, name) if found is NULL else None  # what leads to it leads to its parts
    if isinstance(value, threading.local) and call.is_outer(value) and found is NULL:
        # Each thread has its own. Only a plain answer is of use: what leads to another object is not known.
        path = f"{call.checks.path_of(value)}.{name}"
        call.checks.ask(path, getattr, (value, name, NULL), getattr(value, name, NULL))
        return None
    if _graphs.lookup_kind(kind) == 0 and not is_python_class(kind):
        raise EagerError(f"reads {name} of a {kind.__name__}, which C code finds")
    if issubclass(kind, (numpy.generic, numpy.dtype)):
        if not numpy_functions.is_exact(value):
            raise EagerError(f"reads {name} of a {kind.__name__}")
        return None
    if kind in PLAIN or call.is_fresh(value) or call.is_given(value):
        if isinstance(found, property) and kind not in PLAIN:
            _check_getter(kind, name, found)
        _lead_to(call, value, name, found)
        return call.make if name == "__dict__" and call.is_fresh(value) else _told_of_context(call, name, value)
    return _read_of_outer(call, value, name, found)


def _read_of_super(call: FollowedCall, value: Any, name: str) -> Callable[[Any], object] | None:
    """super().name: what the bases have by this name. C code that reads the object itself is seen as if read of it."""
    owner = value.__self__
    kinds = type.__dict__["__mro__"].__get__(value.__self_class__)
    for kind in kinds[kinds.index(value.__thisclass__) + 1 :]:
        found = type.__dict__["__dict__"].__get__(kind).get(name, NULL)
        if found is NULL:
            continue
        if type(found) is property:
            _check_getter(kind, name, found)
        elif isinstance(found, types.GetSetDescriptorType | types.MemberDescriptorType) and call.is_outer(owner):
            if isinstance(owner, (type, torch.Tensor)):
                raise EagerError(f"reads super().{name}")
            return _read_of_outer(call, owner, name, found)
        return None
    return None


def _read_of_outer(call: FollowedCall, value: Any, name: str, found: Any) -> Callable[[Any], object] | None:
    kind = type(value)
    if name == "__dict__":
        own = _graphs.instance_dict(value)
        if own is not None:
            call.checks.class_of(value, own)
            if call.writes is None:  # else what is read of it is guarded by itself, and the rest may be written
                call.guard_whole(own)
        return None
    if isinstance(found, property):
        _check_getter(kind, name, found)
        return _made_list(call) if kind in OPAQUE else None
    if name == "__class__":
        return None
    if isinstance(found, types.GetSetDescriptorType | types.MemberDescriptorType):
        return _read_of_c(call, value, name, found)
    own = _graphs.instance_dict(value)
    if found is not NULL and is_python_class(type(found)):
        call.guard_class(found)  # it may be a descriptor, or become one
    if own is not None:
        call.checks.class_of(value, own)
        call.guard_entry(own, name, dict.get(own, name, NULL), "" if _is_script(value) else call.checks.path_of(value))
        if name in own and not _is_data_descriptor(found):
            return None
    if found is NULL and isinstance(value, types.ModuleType) and own is not None:
        getter = dict.get(own, "__getattr__", NULL)
        call.guard_entry(own, "__getattr__", getter)
        if getter is not NULL and not isinstance(getter, types.FunctionType):
            raise EagerError(f"reads {name} of a module whose __getattr__ is no function of Python")
    if found is NULL:
        return None  # Python's __getattr__ is followed; otherwise it is an AttributeError
    if is_descriptor(found) and not isinstance(found, DESCRIPTORS) and not is_python_class(type(found)):
        raise EagerError(f"reads {kind.__name__}.{name}, which is a {type(found).__name__}")
    _lead_to(call, value, name, found)
    return None


def _lead_to(call: FollowedCall, value: Any, name: str, found: Any) -> None:
    """What its class has by this name is alive as long as the class is as it was."""
    if found is not NULL and is_python_class(type(found)):
        call.guard_class(found)  # __get__ is followed
    number = call.guard_type(type(value)) if found is not NULL else -1
    if number >= 0:
        call.checks.lead(found, number, f"{call.checks.path_of(value)}.{name}")


def _told_of_context(call: FollowedCall, name: str, value: Any) -> Callable[[Any], object] | None:
    """What the context of an autograd.Function saved for its backward."""
    return call.adopt if name == "saved_tensors" and isinstance(value, FunctionBase) else None


def _made_list(call: FollowedCall) -> Callable[[Any], object]:
    """C++ gives a list of its own each time, and objects of C++ in it."""

    def made(answer: Any) -> None:
        for one in answer if type(answer) is list else ():
            if type(one) in OPAQUE:
                call.make(one)
        if type(answer) is list:
            call.make(answer)

    return made


def _check_getter(kind: type, name: str, found: property) -> None:
    if found.fget is not None and not isinstance(found.fget, types.FunctionType) and kind not in OPAQUE:
        raise EagerError(f"reads {kind.__name__}.{name}, a property whose getter is no function of Python")


def _is_script(value: Any) -> bool:
    return type(value) is types.ModuleType and value.__name__ == "__main__"


def _is_data_descriptor(found: Any) -> bool:
    return found is not NULL and type_lookup(type(found), "__set__") is not NULL


def _read_of_type(call: FollowedCall, value: type, name: str) -> Callable[[Any], object] | None:
    number = call.guard_type(value)
    call.guard_type(type(value))
    found = type_lookup(value, name)
    if found is not NULL:
        if number >= 0:
            call.checks.lead(found, number, f"{value.__qualname__}.{name}")
        if is_python_class(type(found)):
            call.guard_class(found)
        return None
    of_meta = type_lookup(type(value), name)
    if isinstance(of_meta, types.GetSetDescriptorType | types.MemberDescriptorType) and name not in _OF_TYPES:
        raise EagerError(f"reads {value.__qualname__}.{name}")
    if number >= 0 and name in _OF_TYPES:
        return lambda answer: call.checks.lead(answer, number, f"{value.__qualname__}.{name}")
    return None


def _read_of_c(call: FollowedCall, value: Any, name: str, found: Any) -> Callable[[Any], object] | None:
    """An attribute that C code of the object's class gives."""
    kind = type(value)
    if isinstance(found, types.MemberDescriptorType):
        try:
            answer = found.__get__(value, kind)
        except AttributeError:
            answer = NULL
        if kind is types.FunctionType and name in _ATTRIBUTES_OF_FUNCTIONS:
            call.checks.function_attribute(value, name)
        elif kind is types.FunctionType:
            call.checks.lead(answer, call.checks.function(value, value.__code__), f"{value.__qualname__}.{name}")
        elif is_python_class(kind) or kind is functools.partial:
            call.checks.member(value, found, answer)
        elif kind not in _CONSTANT:
            raise EagerError(f"reads {kind.__name__}.{name}")
        return None
    if kind is types.FunctionType and name in _OF_FUNCTIONS:
        number = call.checks.function(value, value.__code__)
        return lambda answer: call.checks.lead(answer, number, f"{value.__qualname__}.{name}")
    if kind is types.FunctionType and name in _ATTRIBUTES_OF_FUNCTIONS:
        call.checks.function_attribute(value, name)
        return None
    if kind in _CONSTANT or kind in OPAQUE or (kind is types.ModuleType and name == "__name__"):
        return None
    if isinstance(value, FunctionBase) or issubclass(kind, BaseException):
        raise EagerError(f"reads {name} of a {kind.__name__} that was made before the call")
    raise EagerError(f"reads {kind.__module__}.{kind.__name__}.{name}, which C code gives")


def _told_of_tensor(call: FollowedCall, tensor: torch.Tensor, name: str) -> Callable[[Any], object] | None:
    if name in tensors.VIEWS:
        return call.make
    if name != "grad" or call.is_fresh(tensor) or tensors.is_clearing(call):
        return None

    def slot(value: Any) -> None:
        # The graph finds gradients in their place at each call; only whether there is one is guarded.
        if isinstance(value, torch.Tensor) and not call.is_fresh(value):
            call.native.give(value)
            call.see(value)

    return slot


def store(call: FollowedCall, value: Any, name: str, new: Any, by_object: bool = False) -> None:
    """value.name = new. `by_object`: object.__setattr__ itself is called."""
    if isinstance(value, torch.Tensor):
        return _store_of_tensor(call, value, name, new)
    if call.is_fresh(value):
        return None
    if call.is_given(value):
        raise WriteError("writes to one of its arguments")
    kind = type(value)
    found = type_lookup(kind, name)
    setter = type_lookup(kind, "__setattr__")
    if not by_object and (type(found) is property or isinstance(setter, types.FunctionType)):
        if type(found) is property and type(found.fset) not in (types.FunctionType, type(None)):
            raise EagerError(f"sets {kind.__name__}.{name}, a property whose setter is no function of Python")
        return call.guard_class(value)  # followed
    if isinstance(value, type):
        return call.store_of_class(value, name)
    own = _graphs.instance_dict(value)
    if isinstance(value, threading.local):
        raise EagerError(f"sets {kind.__name__}.{name}")
    if own is None or _is_data_descriptor(found):
        raise WriteError(f"sets {kind.__name__}.{name}")
    call.guard_class(value)
    call.checks.class_of(value, own)
    return call.store(own, name)


def _store_of_tensor(call: FollowedCall, tensor: torch.Tensor, name: str, new: Any) -> None:
    found = type_lookup(type(tensor), name)
    if name == "grad" and new is None:
        call.cleared.append(tensor)
        call.clears[id(tensor)] = tensor
        if call.writes is not None:
            return None
        return tensors.ask(call, tensor, TensorState.GRAD | TensorState.REQUIRES_GRAD)
    if call.is_fresh(tensor) and (found is NULL or name in ("requires_grad",)):
        return None
    if call.writes is not None and name == "grad" and call.is_fresh(new) and not call.is_of_others(new):
        call.clears[id(tensor)] = tensor
        return call.gradients_set.append(tensor)  # which a tape does again
    if call.writes is not None and name == "data" and isinstance(new, torch.Tensor):
        return call.set_data(tensor, new)
    if name == "requires_grad" or call.is_fresh(tensor):
        raise EagerError(f"sets {name} of a tensor")
    raise WriteError(f"sets {name} of a tensor")


def delete(call: FollowedCall, value: Any, name: str) -> None:
    if not call.is_fresh(value):
        raise WriteError(f"deletes {type(value).__name__}.{name}")
