"""Tensors in a followed call: questions that are no ops, and ops, which the tape sees."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from torchreel._graphs import NULL, TensorState, instance_dict
from torchreel._torch.autograd import PRESERVES_VERSION
from torchreel._torch.tensors import is_view
from torchreel.guards.eager import EagerError

if TYPE_CHECKING:
    from torchreel.guards.followed_call import FollowedCall

_GEOMETRY = TensorState.GEOMETRY
_LEAF = TensorState.REQUIRES_GRAD | TensorState.GRAD_FN
# Attributes and methods that are questions, and what the answer depends on.
QUESTIONS: dict[str, int] = {
    **dict.fromkeys(
        ("shape", "dtype", "device", "ndim", "layout", "is_sparse", "is_sparse_csr", "is_quantized", "is_meta",
         "is_nested", "is_cuda", "is_mkldnn", "is_cpu", "is_xla", "is_mps", "is_xpu", "is_ipu", "is_hpu", "is_maia",
         "is_mtia", "is_vulkan", "itemsize", "nbytes", "names", "is_ort"),
        _GEOMETRY,
    ),
    "requires_grad": TensorState.REQUIRES_GRAD,
    "is_leaf": _LEAF,
    "grad_fn": TensorState.GRAD_FN,
    "grad": TensorState.GRAD | TensorState.REQUIRES_GRAD,
    "retains_grad": TensorState.RETAINS_GRAD,
    "_backward_hooks": TensorState.HOOKS,
    "_post_accumulate_grad_hooks": TensorState.ACCUMULATE_HOOKS,
}  # fmt: skip
METHOD_QUESTIONS: dict[str, int] = dict.fromkeys(
    ("size", "dim", "numel", "nelement", "stride", "is_contiguous", "is_floating_point", "is_complex", "is_signed",
     "element_size", "is_conj", "is_neg", "is_inference", "get_device", "__len__", "ndimension", "has_names",
     "storage_offset", "is_pinned", "is_distributed", "dense_dim", "sparse_dim"),
    _GEOMETRY,
)  # fmt: skip
# Views that are attributes.
VIEWS = frozenset({"T", "mT", "H", "mH", "real", "imag", "data"})
# What of an argument's geometry is not in the key of a call.
_NOT_IN_KEY = frozenset({"storage_offset"})
_OF_HISTORY = frozenset(
    ("is_leaf", "grad_fn", "grad", "retains_grad", "_backward_hooks", "_post_accumulate_grad_hooks")
)
_BOUND = _LEAF | TensorState.FORWARD_GRAD
_HOOKS = TensorState.HOOKS | TensorState.ACCUMULATE_HOOKS


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)


def tensors_held(value: Any) -> Iterator[torch.Tensor]:
    """Tensors among the items and attributes of an object, not of those in it."""
    items: list[Any] = list(dict.values(value)) if isinstance(value, dict) else []
    if isinstance(value, (list, tuple)):
        items = list(value)
    for item in (*items, *(instance_dict(value) or {}).values()):
        yield from tensors_in(item) if isinstance(item, (tuple, torch.Tensor)) else ()


def ask(call: FollowedCall, tensor: torch.Tensor, mask: int) -> None:
    """Have the answer guarded that a tensor of others gave when it was first seen."""
    if call.is_fresh(tensor):
        return
    call.see(tensor)
    _, before = call.asked[id(tensor)]
    call.asked[id(tensor)] = tensor, before | mask


def question(call: FollowedCall, tensor: torch.Tensor, name: str, mask: int) -> None:
    if call.writes is not None and (call.is_given(tensor) or (name == "grad" and _is_cleared(call, tensor))):
        return  # a tape compares its inputs itself
    if name in _NOT_IN_KEY and (call.is_given(tensor) or (call.is_fresh(tensor) and is_view(tensor))):
        raise EagerError(f"reads {name} of an argument")
    if name in _OF_HISTORY and call.has_history(tensor):
        raise EagerError(f"reads {name} of an argument that has a history")
    ask(call, tensor, mask)


def is_clearing(call: FollowedCall) -> bool:
    """Whether zero_grad() reads gradients to let go of them: a tape knows what becomes of them."""
    return call.writes is not None and call.frame.f_code in _CLEARING


def is_old_gradient(call: FollowedCall, tensor: torch.Tensor) -> bool:
    """One that zero_grad() is about to let go of: nobody else may keep it."""
    return is_clearing(call) and not tensor.requires_grad and not call.is_fresh(tensor)


def _is_cleared(call: FollowedCall, tensor: torch.Tensor) -> bool:
    """Whether it does not matter if a tensor had a gradient when the call began: it is cleared, or about to be."""
    if not is_clearing(call):
        return id(tensor) in call.clears
    if call.frame.f_locals["set_to_none"]:
        call.clears[id(tensor)] = tensor
    return True


def bind(call: FollowedCall, tensor: torch.Tensor) -> None:
    """A tensor goes into an op: what comes out is like it."""
    if call.is_fresh(tensor):
        return
    call.see(tensor)
    # An argument with a history is recorded as a leaf, and its history joined to the graph afterwards.
    ask(call, tensor, TensorState.FORWARD_GRAD if call.is_given(tensor) else _BOUND)
    state = call.states[id(tensor)].bits
    if state & TensorState.FORWARD_GRAD:
        raise EagerError("is given a tensor with a tangent of forward-mode AD")
    if state & TensorState.REQUIRES_GRAD and torch.is_grad_enabled():
        ask(call, tensor, _HOOKS)
        call.hooked = call.hooked or bool(state & _HOOKS)


def run_op(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Callable[[Any], None]:
    """An op: the tape sees it. What it is given besides tensors must be known to the bottom."""
    call.native.let_go_of_recent()  # before the op makes more
    given = [*tensors_in(values), *tensors_in(keywords)]
    for tensor in given:
        call.guard_type(type(tensor))  # whose methods somebody may replace
        bind(call, tensor)
    for value in (*values, *keywords.values()):
        call.deep(value)
    call.arrays_are_stale = bool(call.shared_arrays)
    known = {id(tensor) for tensor in given}

    def mark(result: Any) -> None:
        for tensor in tensors_in(result):
            if id(tensor) not in known:
                call.native.make(tensor)
        if not isinstance(result, torch.Tensor):
            call.native.make(result)

    return mark


def read_number(call: FollowedCall, tensor: torch.Tensor) -> None:
    """Python reads a number of a tensor: the tape sees it, and compares it at each replay."""
    call.guard_type(type(tensor))
    bind(call, tensor)


def _is_mark(name: Any) -> bool:
    """An attribute by which Dynamo marks a tensor: nothing to eager."""
    return type(name) is str and name.startswith("_dynamo_")


def read(call: FollowedCall, tensor: torch.Tensor, name: str, found: Any) -> bool:
    """An attribute of a tensor. Gives False where it is found like those of other objects."""
    if is_old_gradient(call, tensor):
        return True
    call.see(tensor)
    own = {key: value for key, value in (instance_dict(tensor) or {}).items() if not _is_mark(key)}
    if _is_mark(name):
        raise EagerError(f"reads {name} of a tensor")
    if call.is_fresh(tensor):
        if own and name in own:
            return False
    elif own and call.is_given(tensor):
        raise EagerError(f"reads {name} of an argument that has attributes of its own")
    elif own:
        held = instance_dict(tensor)
        assert held is not None
        call.checks.class_of(tensor, held)
        call.guard_entry(held, name, held.get(name, NULL))
        if name in own:
            return True
    else:
        ask(call, tensor, TensorState.OWN_ATTRIBUTES)
    if found is NULL:
        return False
    if call.is_fresh(tensor) or isinstance(found, _METHODS):
        if name in _UNKNOWN_OF_FRESH:
            raise EagerError(f"reads Tensor.{name}")
        return True
    if name == "_version" and call.frame.f_code in _PRESERVES_VERSION:
        return True  # which is set back
    if name in QUESTIONS:
        question(call, tensor, name, QUESTIONS[name])
        return True
    if isinstance(found, types.GetSetDescriptorType):
        if name in VIEWS:
            return True
        raise EagerError(f"reads Tensor.{name}")
    return False


_CLEARING = {torch.nn.Module.zero_grad.__code__, torch.optim.Optimizer.zero_grad.__wrapped__.__code__}
_PRESERVES_VERSION = {
    PRESERVES_VERSION,
    *(one for one in PRESERVES_VERSION.co_consts if isinstance(one, types.CodeType)),
}
_METHODS = (
    types.MethodDescriptorType, types.WrapperDescriptorType, types.BuiltinFunctionType, types.FunctionType, property,
)  # fmt: skip
# What depends on more than the call, whoever made the tensor.
_UNKNOWN_OF_FRESH = frozenset({"_cdata", "_base", "_version", "data_ptr", "__cuda_array_interface__", "volatile"})


def leaves(tensor: torch.Tensor, seen: set[Any]) -> Iterator[torch.Tensor]:
    """The tensors that a backward from this one accumulates gradients in."""
    todo: list[Any] = [tensor.grad_fn] if tensor.grad_fn is not None else []
    if tensor.is_leaf and tensor.requires_grad:
        yield tensor
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if type(node).__name__ == "AccumulateGrad":
            yield node.variable
        todo += [following for following, _ in node.next_functions]
