"""Single calls of ops, as PyTorch's database of ops and autograd make them, and what each layer of kernels gives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from tests.tape.op_database import UNSTEADY, Call, Way, samples, title
from torchreel import _graphs

LAYERS = ("handwritten", "structured", "out", "boxed")
_SEED = 5
# Memory that nobody has written is not the same twice.
_UNWRITTEN = ("aten::empty", "aten::new_empty", "aten::_empty", "aten::resize", "aten::set_", "aten::_ctc_loss")
# They trust their mask, or their offsets, and go to whatever memory is there where these are not in order.
_TRUSTING = ("aten::_unsafe_masked_index", "aten::segment_reduce", "aten::_segment_reduce", "aten::_embedding_bag")


@dataclass(frozen=True)
class OpCall:
    op: Any  # an OpOverload
    arguments: tuple[Any, ...]  # all of the schema's

    @property
    def name(self) -> str:
        name: str = self.op._schema.name
        overload: str = self.op._schema.overload_name
        return f"{name}.{overload}" if overload else name

    def __str__(self) -> str:
        values = [_text(value) for value in self.arguments]
        return f"{self.name}({', '.join(values)})"


def _text(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{value.dtype}{list(value.shape)}{list(value.stride())}".removeprefix("torch.")
    return f"[{', '.join(map(_text, value))}]" if isinstance(value, list | tuple) else repr(value)


class _Calls(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.made: list[OpCall] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # or torch imports its compiler, which takes seconds

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = list(args)
        for argument in func._schema.arguments[len(args) :]:
            given.append(kwargs.get(argument.name, argument.default_value))
        call = OpCall(func, tuple(given))
        if is_plain(call):
            self.made.append(OpCall(func, copied(call.arguments)))
        return func(*args, **kwargs)


def calls_of(op: Any, way: Way, most: int | None) -> Iterator[OpCall]:
    """The ops below autograd of the database's samples of an op; each kind of call once."""
    if op.name in UNSTEADY:
        return
    seen = set()
    for sample in samples(op, way, most):
        call = Call(op, way, sample)
        try:
            call.weigh()
            with _Calls() as calls:
                call(*call.arguments())
        except (RuntimeError, NotImplementedError, TypeError, AssertionError):
            continue  # a sample that eager does not take: not ours
        for made in calls.made:
            if str(made) not in seen:
                seen.add(str(made))
                yield made


def is_plain(call: OpCall) -> bool:
    """Whether it is a call for a kernel: of dense tensors, and neither a view nor memory as it comes."""
    schema = call.op._schema
    if schema.name.startswith(_UNWRITTEN) or torch.Tag.inplace_view in call.op.tags:
        return False
    if any(result.alias_info is not None and not result.alias_info.is_write for result in schema.returns):
        return False
    if not all(_is_of_tensors(result.type) for result in schema.returns):
        return False
    tensors = [leaf for leaf in tree_leaves(call.arguments) if isinstance(leaf, torch.Tensor)]
    return bool(tensors) and all(_is_dense(tensor) for tensor in tensors)


def _is_of_tensors(type_: Any) -> bool:
    return str(type_) in ("Tensor", "List[Tensor]")


def _is_dense(tensor: torch.Tensor) -> bool:
    plain = tensor.layout == torch.strided and tensor.device.type == "cpu" and not tensor.is_quantized
    return plain and not (tensor.is_nested or tensor.is_conj() or tensor.is_neg() or tensor._is_zerotensor())


def copied(arguments: Any, *, turned: bool = False) -> Any:
    """Tensors of the same geometry on copies of their storages; turned: with elements in the reverse order."""
    storages: dict[int, torch.Tensor] = {}

    def copy(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        value = value.detach()
        whole = _whole(value)
        key = value.untyped_storage()._cdata
        known = key in storages
        storage = storages.setdefault(key, whole.clone()).untyped_storage()
        fresh = torch.empty((), dtype=value.dtype)
        fresh.set_(storage, value.storage_offset(), value.shape, value.stride())
        if turned and not known and 0 not in value.stride():
            fresh.copy_(value.flip(tuple(range(value.dim()))))  # and not what is in its gaps: that may be no index
        return fresh

    return tree_map(copy, arguments)


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    """All of a storage, as elements of the tensor's dtype."""
    count = tensor.untyped_storage().nbytes() // tensor.element_size()
    return torch.empty((), dtype=tensor.dtype).set_(tensor.untyped_storage(), 0, (count,), (1,))


def difference(call: OpCall, layer: str) -> tuple[bool, str]:
    """Whether the layer takes the call, and where it is not bit by bit what the op itself gives."""
    static = copied(call.arguments)
    with torch.no_grad():
        expected, results = _by_torch(call, copied(call.arguments))
        destinations = _destinations(call, results, static)
        before = [bits(tensor) for tensor in destinations if tensor is not None]
        kernel = _graphs.kernel(call.name, static, destinations, layer)
        if kernel is None:
            return False, ""
        if [bits(tensor) for tensor in destinations if tensor is not None] != before:
            return True, "wrote before it was run"
        for turned in (False, not call.name.startswith(_TRUSTING), False):
            fresh = copied(call.arguments, turned=turned)
            try:
                expected, now = _by_torch(call, copied(fresh))
            except (RuntimeError, IndexError):
                continue  # eager does not take these values
            _fill(static, fresh)
            torch.manual_seed(_SEED)
            try:
                kernel.run()
            except RuntimeError as error:
                if _sizes(now) == _sizes(results):
                    return True, f"raised {error}"
                continue  # memory of that size was not planned
            given = [bits(tensor) for tensor in [*_tensors(static), *destinations] if tensor is not None]
            if given != expected:
                return True, "turned" if turned else "as it was"
    return True, ""


def _by_torch(call: OpCall, arguments: Any) -> tuple[list[Any], list[torch.Tensor | None]]:
    """The bits of what it was given and of what it gave, after it ran."""
    torch.manual_seed(_SEED)
    gave = call.op(*_positional(call, arguments), **_named(call, arguments))
    results = tree_leaves(gave, is_leaf=lambda value: value is None) if call.op._schema.returns else []
    return [bits(tensor) for tensor in [*_tensors(arguments), *results] if tensor is not None], results


def _sizes(results: list[torch.Tensor | None]) -> list[Any]:
    return [None if result is None else result.shape for result in results]


def _destinations(call: OpCall, results: list[torch.Tensor | None], static: Any) -> list[torch.Tensor | None]:
    """Where results belong: filled with what no op gives."""
    schema = call.op._schema
    written = [
        value for value, a in zip(static, schema.arguments, strict=True) if a.alias_info and a.alias_info.is_write
    ]
    places = [bool(result.alias_info) for result in schema.returns]
    if any(places):
        taken = iter(_tensors(written))
        if all(places):
            return list(_tensors(written))[: len(places)]
        fresh = iter(results[sum(places[: places.index(False)]) :])
        return [next(taken) if place else _garbage(next(fresh)) for place in places]
    return [_garbage(result) for result in results]


def _garbage(like: torch.Tensor | None) -> torch.Tensor | None:
    if like is None:
        return None
    made = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype)
    torch.empty(0, dtype=torch.uint8).set_(made.untyped_storage()).fill_(1 if like.dtype == torch.bool else 0xA5)
    return made


def bits(tensor: torch.Tensor) -> tuple[torch.dtype, torch.Size, bytes]:
    """Equal for equal bits, whatever the strides."""
    dense = torch.empty(tensor.numel(), dtype=tensor.dtype).copy_(tensor.detach().reshape(-1))
    return tensor.dtype, tensor.shape, dense.view(torch.uint8).numpy().tobytes()


def _fill(static: Any, fresh: Any) -> None:
    for tensor, value in zip(_tensors(static), _tensors(fresh), strict=True):
        _whole(tensor).copy_(_whole(value))


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _positional(call: OpCall, arguments: Any) -> list[Any]:
    return [value for value, a in zip(arguments, call.op._schema.arguments, strict=True) if not a.kwarg_only]


def _named(call: OpCall, arguments: Any) -> dict[str, Any]:
    schema = call.op._schema.arguments
    return {a.name: value for value, a in zip(arguments, schema, strict=True) if a.kwarg_only}


def failures(op: Any, way: Way, most: int | None, taken: dict[str, set[str]]) -> list[str]:
    """Sentences on calls of which a layer makes something else than the op; `taken` gets the ops of each layer."""
    found = []
    for call in calls_of(op, way, most):
        for layer in LAYERS:
            accepted, unlike = difference(call, layer)
            if accepted:
                taken.setdefault(layer, set()).add(call.name)
            if unlike:
                found.append(f"{title(op)}, {way}: {call} in the layer {layer}: {unlike}")
    return found
