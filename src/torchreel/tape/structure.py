"""What a function takes and returns: nested structures, their tensors, and the same again around other tensors."""

from __future__ import annotations

import copy
import dataclasses
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from torchreel._torch.autograd import accumulate_hooks, backward_hooks
from torchreel._torch.dispatch import is_wrapper_subclass
from torchreel.program.model import Complex, Ref, Tree
from torchreel.tape.likeness import Part, difference, likeness

# Objects that a structure only points to: they are the same at each call.
_KEPT_WHOLE = (torch.nn.Module, torch.optim.Optimizer, torch.Generator, type, types.ModuleType, types.FunctionType)
_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
_PLAIN_TYPES = frozenset(_PLAIN)
_DEEPEST = 12


class Structure:
    """A value with its tensors taken out: they are `tensors`, and the rest is kept to build the value again.

    A tensor that occurs twice is taken out twice: at the next call they may be two. `known` are objects that
    are taken out whole: rebuild() is given others for them. With `unique` a tensor that occurs twice is
    taken out once: results of one call, which are one object at each call.
    """

    def __init__(self, value: Any, known: Sequence[Any] = (), unique: bool = False) -> None:
        self.tensors: list[torch.Tensor] = []
        self._unique = unique
        self._known = {id(one): Known(index) for index, one in enumerate(known)}
        self.slots: list[int] = []  # of the tensors, once a tape knows them
        self.aliases: list[int] = []  # indices of tensors that lie as others do, and are not these
        self.leaves: list[int] = []  # indices of new leaves that require a gradient
        self.inference: list[int] = []  # indices of inference tensors
        self.like: Like | None = None  # of arguments: what they were like when they were given
        self._open: list[Any] = []  # containers that are being taken apart
        self.contains_itself = False
        self.shape = self._take(value, 0)  # with a TensorLeaf for each tensor

    def rebuild(self, tensors: list[torch.Tensor], known: Sequence[Any] = ()) -> Any:
        return _built(self.shape, tensors, known)

    def formed(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """Values of its tensors as the function gave them: see ResultForms."""
        made: dict[int, torch.Tensor] = {}
        for index in self.inference:
            tensor = tensors[index]
            tensors[index] = made.setdefault(id(tensor), tensor if tensor.is_inference() else _of_inference(tensor))
        for index in self.aliases:
            tensors[index] = tensors[index].detach()
        for index in self.leaves:
            if tensors[index].is_leaf and not tensors[index].is_inference():
                tensors[index].requires_grad_()
        return tensors

    def constants(self) -> list[tuple[str, Any]]:
        """What is no tensor, each with where it stands."""
        return list(_constants(self.shape, ""))

    def tensor_names(self) -> list[str]:
        """Where each tensor stands: "0.hidden", "1"."""
        return [name for name, _ in sorted(_names(self.shape, ""), key=lambda named: named[1])]

    def tree(self, slots: list[int]) -> Tree:
        return _tree(self.shape, slots)

    def _take(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind in _PLAIN_TYPES:  # by far the most, and checks against classes of torch are slow
            return value
        if isinstance(value, torch.Tensor):
            return self._take_tensor(value, depth)
        if depth > _DEEPEST:
            return value
        if kind is tuple or kind is list or kind is dict:
            return self._take_container(value, depth)
        if isinstance(value, (*_PLAIN, *_KEPT_WHOLE)):
            return value
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return tuple.__new__(kind, [self._take(part, depth + 1) for part in value])
        return self._take_object(value, depth)

    def _take_container(self, value: Any, depth: int) -> Any:
        if any(each is value for each in self._open):
            self.contains_itself = True
            return None
        self._open.append(value)
        try:
            if type(value) is dict:
                return {key: self._take(part, depth + 1) for key, part in value.items()}
            return type(value)([self._take(part, depth + 1) for part in value])
        finally:
            self._open.pop()

    def _take_tensor(self, tensor: torch.Tensor, depth: int) -> Any:
        if is_wrapper_subclass(tensor):
            names, context = tensor.__tensor_flatten__()
            parts = {name: self._take(getattr(tensor, name), depth + 1) for name in names}
            return Wrapper(type(tensor), parts, context, tensor.size(), tensor.stride())
        if self._unique:
            for index, other in enumerate(self.tensors):
                if other is tensor:
                    return TensorLeaf(index)
        leaf = TensorLeaf(len(self.tensors))
        self.tensors.append(tensor)
        return leaf

    def _take_object(self, value: Any, depth: int) -> Any:
        """A copy of the object with leaves for its tensors, or the object itself if it has none."""
        if id(value) in self._known:
            return self._known[id(value)]
        inside = list(_tensors_inside(value, set(self._known), depth))
        if not inside:
            return value
        memo: dict[int, Any] = {id(tensor): self._take_tensor(tensor, depth) for tensor in inside}
        memo |= {id(kept): kept for kept in _kept_inside(value, set(), depth)}
        memo |= self._known
        leaves = [memo[id(tensor)] for tensor in inside]
        return Whole(copy.deepcopy(value, memo), leaves, list(self._known.values()))


def _of_inference(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as a tensor of inference mode."""
    with torch.inference_mode():
        empty = torch.empty(0, dtype=tensor.dtype)
        return empty.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride())


class Like:
    """What the arguments of a call were like."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any], in_order: bool) -> None:
        self._in_order = in_order  # whether the function can tell in which order arguments were named
        self._was = self._parts(args, kwargs)
        self._is_simple, self._count = not kwargs and all(map(_is_simple, args)), len(args)
        self.gradients: list[tuple[bool, bool]] = []
        self.turned: list[tuple[int, bool]] = []
        self.owned: frozenset[int] = frozenset()  # indices of tensors that the function also has by other names

    def note_gradients(self, tensors: list[torch.Tensor]) -> None:
        """Before the call: of each tensor, whether it requires a gradient, and whether it is a leaf."""
        self.gradients = [(tensor.requires_grad, tensor.is_leaf) for tensor in tensors]

    def note_turned(self, tensors: list[torch.Tensor]) -> None:
        """After the call: note which tensors the function made require a gradient, or not."""
        for index, (tensor, (required, _)) in enumerate(zip(tensors, self.gradients, strict=True)):
            if tensor.is_leaf and tensor.requires_grad is not required:
                self.turned.append((index, tensor.requires_grad))

    def difference(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, Any, Any] | None:
        """The first difference from the traced arguments: its path, the value then, the value now; or None."""
        if self._is_simple and len(args) == self._count and not kwargs and all(map(_is_simple, args)):
            return None
        return difference(self._was, self._parts(args, kwargs))

    def _parts(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Part]:
        return likeness((args, kwargs if self._in_order else dict(sorted(kwargs.items()))))


def _is_simple(value: Any) -> bool:
    """A tensor, and nothing besides: what most arguments are."""
    return (
        type(value) is torch.Tensor and not value.__dict__ and not backward_hooks(value) and not accumulate_hooks(value)
    )


@dataclasses.dataclass(frozen=True)
class TensorLeaf:
    """Where a tensor stood."""

    index: int

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return memo.get(id(self), self)


@dataclasses.dataclass(frozen=True)
class Known:
    """Where an object stood that the caller knows."""

    index: int

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return memo.get(id(self), self)


@dataclasses.dataclass(frozen=True)
class Wrapper:
    """A tensor of a class that holds other tensors."""

    type: Any
    parts: dict[str, Any]
    context: Any
    size: Any
    stride: Any


@dataclasses.dataclass(frozen=True)
class Whole:
    """An object of any other class, with leaves where its tensors were."""

    shape: Any
    tensor_leaves: list[Any]
    known: list[Known] = dataclasses.field(default_factory=list)


def _built(shape: Any, tensors: list[torch.Tensor], known: Sequence[Any] = ()) -> Any:
    if isinstance(shape, Known):
        return known[shape.index]
    if isinstance(shape, TensorLeaf):
        return tensors[shape.index]
    if isinstance(shape, Wrapper):
        parts = {name: _built(part, tensors, known) for name, part in shape.parts.items()}
        return shape.type.__tensor_unflatten__(parts, shape.context, shape.size, shape.stride)
    if isinstance(shape, Whole):
        memo = {id(leaf): _built(leaf, tensors, known) for leaf in [*shape.tensor_leaves, *shape.known]}
        return copy.deepcopy(shape.shape, memo)
    if type(shape) in (tuple, list):
        return type(shape)(_built(part, tensors, known) for part in shape)
    if type(shape) is dict:
        return {key: _built(part, tensors, known) for key, part in shape.items()}
    if isinstance(shape, tuple) and hasattr(shape, "_fields"):
        return tuple.__new__(type(shape), [_built(part, tensors, known) for part in shape])
    return shape


def _parts(shape: Any) -> Iterator[tuple[str, Any]] | None:
    """The named parts of a container, or None for a leaf."""
    if isinstance(shape, Wrapper):
        return iter(shape.parts.items())
    if isinstance(shape, Whole):
        return ((f"{type(shape.shape).__name__}[{index}]", leaf) for index, leaf in enumerate(shape.tensor_leaves))
    if isinstance(shape, dict):
        return ((str(key), part) for key, part in shape.items())
    if isinstance(shape, tuple) and hasattr(shape, "_fields"):
        return zip(shape._fields, shape, strict=True)
    if type(shape) in (tuple, list):
        return ((str(index), part) for index, part in enumerate(shape))
    return None


def _joined(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def _names(shape: Any, prefix: str) -> Iterator[tuple[str, int]]:
    if isinstance(shape, TensorLeaf):
        yield prefix, shape.index
    for name, part in _parts(shape) or ():
        yield from _names(part, _joined(prefix, name))


def _constants(shape: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    parts = _parts(shape)
    if isinstance(shape, TensorLeaf):
        return
    if parts is None:
        yield prefix, shape
        return
    for name, part in parts:
        yield from _constants(part, _joined(prefix, name))


def _tree(shape: Any, slots: list[int]) -> Tree:
    if isinstance(shape, TensorLeaf):
        slot = slots[shape.index]
        return Tree("leaf", leaf=Ref(slot)) if slot >= 0 else Tree("leaf", text="a tensor that no op of the tape made")
    parts = _parts(shape)
    if parts is None:
        return _leaf(shape)
    named = list(parts)
    kind: Any = "dict"
    if type(shape) in (tuple, list):
        kind = type(shape).__name__
    cls = shape.type if isinstance(shape, Wrapper) else type(shape.shape) if isinstance(shape, Whole) else type(shape)
    name = "" if cls in (tuple, list, dict) else f"{cls.__module__}.{cls.__qualname__}"
    keys = [key for key, _ in named] if kind == "dict" else []
    return Tree(kind, name, keys, [_tree(part, slots) for _, part in named])


def _leaf(value: Any) -> Tree:
    if isinstance(value, complex):
        return Tree("leaf", leaf=Complex(value.real, value.imag))
    if isinstance(value, torch.Size):
        return Tree("tuple", "torch.Size", parts=[Tree("leaf", leaf=size) for size in value])
    if type(value) in (bool, int, float, str, type(None)) and not (isinstance(value, int) and abs(value) >= 2**63):
        return Tree("leaf", leaf=value)
    return Tree("leaf", text=repr(value)[:200])


def _inside(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, list | tuple | set | frozenset | deque):
        yield from value
    for cls in type(value).__mro__ if not isinstance(value, _KEPT_WHOLE) else ():
        slots = vars(cls).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(value, name) and name != "__dict__" and name != "__weakref__":
                yield getattr(value, name)
    if hasattr(value, "__dict__") and not isinstance(value, _KEPT_WHOLE):
        yield from vars(value).values()


def _walk(value: Any, met: set[int], depth: int, wanted: Callable[[Any], bool]) -> Iterator[Any]:
    if id(value) in met or isinstance(value, _PLAIN):
        return
    met.add(id(value))
    if wanted(value):
        yield value
    elif depth <= _DEEPEST and not isinstance(value, _KEPT_WHOLE):
        for part in _inside(value):
            yield from _walk(part, met, depth + 1, wanted)


def _tensors_inside(value: Any, met: set[int], depth: int) -> Iterator[torch.Tensor]:
    return _walk(value, met, depth, lambda part: isinstance(part, torch.Tensor))


def _kept_inside(value: Any, met: set[int], depth: int) -> Iterator[Any]:
    return _walk(value, met, depth, lambda part: isinstance(part, _KEPT_WHOLE))
