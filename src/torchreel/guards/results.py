"""Whether a replay can give what a call returned: the same structure, made anew, around other tensors."""

from __future__ import annotations

import collections
import dataclasses
import types
from typing import TYPE_CHECKING, Any

import torch

from torchreel._graphs import TensorState, gradient_of, instance_dict, type_lookup
from torchreel.guards.types_known import PLAIN, is_plain_to_the_bottom, is_python_class

if TYPE_CHECKING:
    from torchreel.guards.followed_call import FollowedCall

_DEEPEST = 12
_CONTAINERS = (list, tuple, dict, collections.OrderedDict)
# What says how an object is copied or made anew: a replay would have to run it.
_OF_COPIES = ("__getstate__", "__setstate__", "__reduce__", "__reduce_ex__", "__copy__", "__deepcopy__")
_HOLDERS = (dict, list, set, collections.deque, bytearray)
_CONSTANT = (type, types.FunctionType, types.ModuleType, torch.dtype, torch.device, torch.Generator)


class Look:
    """At all that a call returns and leaves."""

    def __init__(self, call: FollowedCall) -> None:
        self._call = call
        self._gradients = {id(gradient_of(tensor)) for tensor, _ in call.asked.values()} - {id(None)}
        self._seen: set[int] = set()

    def reason(self, value: Any, verb: str) -> str:
        """Why the value cannot be given again, or nothing."""
        return self.at(value, 0).replace("returns", verb, 1)

    def at(self, value: Any, depth: int) -> str:
        kind = type(value)
        if isinstance(value, torch.Tensor):
            return self._at_tensor(value)
        if kind in (slice, frozenset) and not is_plain_to_the_bottom(value):
            return f"returns a {kind.__name__} of objects"
        if kind in PLAIN and kind is not tuple:
            return ""
        if depth > _DEEPEST:
            return f"returns containers of more than {_DEEPEST} levels"
        if kind is not tuple and id(value) in self._seen and self._call.is_fresh(value):  # it would be made twice
            return f"returns one {kind.__name__} in two places"
        self._seen.add(id(value))
        if kind in _CONTAINERS or kind.__module__ == "torch.return_types":
            return self._at_container(value, depth)
        if hasattr(kind, "__next__"):
            return f"returns a {kind.__name__}"
        return self._at_object(value, depth)

    def _at_tensor(self, value: torch.Tensor) -> str:
        if id(value) in self._gradients:
            return "returns the gradient of a tensor, which is another object after a replay"
        fresh = self._call.is_fresh(value)
        return "returns a new tensor with attributes of its own" if fresh and _has_own(value) else ""

    def _at_container(self, value: Any, depth: int) -> str:
        kind = type(value)
        if kind in (list, dict) and self._call.is_given(value):
            return f"returns one of its arguments, a {kind.__name__}"
        if kind in (list, dict) and self._call.is_outer(value):
            return f"returns a {kind.__name__} that was made before the call"
        if isinstance(value, dict) and not all(map(is_plain_to_the_bottom, value)):
            return "returns a dict whose keys are objects"
        items = list(value.values() if isinstance(value, dict) else value)
        if kind is collections.OrderedDict and not _holds_tensor(items):
            return "returns a new OrderedDict without tensors, which a replay would give once more"
        return next(filter(None, (self.at(item, depth + 1) for item in items)), "")

    def _at_object(self, value: Any, depth: int) -> str:
        kind, call = type(value), self._call
        if call.is_given(value) and call.writes is not None:
            return "returns an object among its arguments"
        if call.is_given(value):
            return "" if depth == 0 or call.is_top_argument(value) else "returns an object that an argument holds"
        if not call.is_fresh(value):
            known = isinstance(value, _CONSTANT) or (not is_python_class(kind) and self._is_constant(value))
            return "" if known else f"returns a {kind.__name__} that was made before the call"
        if not is_python_class(kind) or isinstance(value, (types.FunctionType, types.MethodType)):
            return f"returns a new {kind.__module__}.{kind.__name__}"
        if isinstance(value, BaseException) or any(vars(base).get("__slots__") for base in kind.__mro__):
            return f"returns a new {kind.__name__}, which has more in it than its __dict__"
        return self._at_new_object(value, depth)

    def _is_constant(self, value: Any) -> bool:
        """Whether a C object that the call is not known to have made is the same at each call."""
        if isinstance(value, (types.MethodType, types.BuiltinFunctionType, types.MethodWrapperType)):
            owner = value.__self__
            return owner is None or (type(owner) not in PLAIN and self._call.is_outer(owner) and self._is_found(owner))
        if isinstance(value, torch.autograd.graph.Node):
            return False
        return self._call.writes is None or (not isinstance(value, _HOLDERS) and self._is_found(value))

    def _is_found(self, value: Any) -> bool:
        """Whether a guard holds only if this object is where it was."""
        return isinstance(value, (*_CONSTANT, torch.nn.Module)) or self._call.checks.finds(value)

    def _at_new_object(self, value: Any, depth: int) -> str:
        kind = type(value)
        own = {name for name in _OF_COPIES if type_lookup(kind, name) is not type_lookup(_base_of(kind), name)}
        # The outputs of transformers' models say by __reduce__ that they are made of their fields, which they hold.
        of_fields = dataclasses.is_dataclass(kind) and issubclass(kind, collections.OrderedDict)
        if own - ({"__reduce__"} if of_fields else set()):
            return f"returns a new {kind.__name__}, whose class says how it is copied"
        if isinstance(value, (set, frozenset)):
            return f"returns a new {kind.__name__}"
        inside = list((instance_dict(value) or {}).values())
        if isinstance(value, dict):
            if not all(map(is_plain_to_the_bottom, dict.keys(value))):
                return "returns a dict whose keys are objects"
            inside += dict.values(value)
        elif isinstance(value, (list, tuple)):
            inside += list.__iter__(value) if isinstance(value, list) else tuple.__iter__(value)
        why = next(filter(None, (self.at(item, depth + 1) for item in inside)), "")
        if not why and not _holds_tensor(inside):
            return f"returns a new {kind.__name__} without tensors, which a replay would give once more"
        return why


def _base_of(kind: type) -> type:
    return next((base for base in (collections.OrderedDict, dict, list, tuple) if issubclass(kind, base)), object)


def _holds_tensor(values: list[Any], depth: int = 0) -> bool:
    for value in values:
        if isinstance(value, torch.Tensor):
            return True
        inside = list(value.values()) if isinstance(value, dict) else []
        inside += list(value) if isinstance(value, (list, tuple)) else []
        inside += list((instance_dict(value) or {}).values()) if is_python_class(type(value)) else []
        if depth < _DEEPEST and _holds_tensor(inside, depth + 1):
            return True
    return False


def _has_own(tensor: torch.Tensor) -> bool:
    return TensorState(tensor).bits & TensorState.OWN_ATTRIBUTES != 0
