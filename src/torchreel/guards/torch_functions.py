"""C functions of torch that are known: ops, which the tape sees; questions to modes, which are in the key of a call."""

from __future__ import annotations

import contextvars
import inspect
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from torchreel._graphs import TensorState
from torchreel._torch import c_functions, compiler, dispatch
from torchreel._torch.c_functions import CUSTOM_OPS
from torchreel._torch.tensors import is_view
from torchreel.guards import distributed_functions, numpy_functions, tensors
from torchreel.guards.eager import EagerError, WriteError
from torchreel.guards.opaque import OPAQUE

if TYPE_CHECKING:
    from torchreel.guards.followed_call import FollowedCall

Told = Callable[[Any], object] | None
Rule = Callable[["FollowedCall", list[Any], dict[str, Any]], Told]

FUNCTIONS: dict[int, Rule] = {}
METHODS: dict[int, Rule] = {}
CLASSES: dict[Any, Rule] = {}
_kept: list[Any] = []


def _know(table: dict[int, Rule], rule: Rule, *objects: Any) -> None:
    for one in objects:
        _kept.append(one)
        table[id(one)] = rule


def _op(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    return tensors.run_op(call, values, keywords)


def _nothing(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    return None


def _make(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    return call.make


# Ops


def _is_aten(name: str) -> bool:
    plain = name.strip("_").removeprefix("r").removeprefix("i")
    return hasattr(torch.ops.aten, name) or (name.startswith("__") and hasattr(torch.ops.aten, plain))


# No op, or one that does more than compute: it hands memory out, exchanges it, or reads what no call has.
_NOT_KNOWN = frozenset(
    ("numpy", "data_ptr", "retain_grad", "set_", "resize_", "resize_as_", "share_memory_", "untyped_storage",
     "_typed_storage", "register_hook", "requires_grad_", "_make_subclass", "as_subclass", "map_", "map2_", "apply_",
     "__array__", "is_set_to", "_is_view", "_set_data", "set_data", "_version", "output_nr", "is_leaf", "data",
     "_make_wrapper_subclass", "_make_dtensor", "_fix_weakref", "_clear_non_serializable_cached_data", "__reduce_ex__",
     "_backward", "unify_type_list", "resolve_type", "from_file", "frombuffer", "from_numpy", "_use_cudnn_ctc_loss",
     "record_stream", "is_same_size_", "refine_names", "_coalesced_", "swap_tensors",
     "nonzero_static", "pin_memory", "_pin_memory", "_lazy_clone", "_cow", "_to_functional_tensor", "_sync",
     "module_load", "storage", "__setstate__", "_nested_tensor_size", "__new__", "_print", "q_scale", "q_zero_point",
     "q_per_channel_axis", "qscheme", "_nnz", "is_coalesced", "_dimI", "_dimV", "_choose_qparams_per_tensor",
     "fbgemm_linear_quantize_weight", "_fused_sdp_choice", "_has_compatible_shallow_copy_type",
     "_cufft_get_plan_cache_size", "_cufft_get_plan_cache_max_size", "_cufft_set_plan_cache_max_size",
     "_cufft_clear_plan_cache", "sparse_resize_", "sparse_resize_and_clear_", "resize_as_sparse_", "_resize_output_",
     "resize", "resize_as", "_propagate_xla_data", "set")
)  # fmt: skip
# Makers and conversions that have no op of their name.
_MORE_OPS = frozenset(
    ("__getitem__", "__setitem__", "new_tensor", "cpu", "float", "half", "double", "int", "long", "bool", "short",
     "char", "to", "new_zeros", "new_ones", "new_empty", "new_full", "type_as", "contiguous", "byte", "bfloat16",
     "tensor", "as_tensor", "arange", "asarray", "empty_like", "new", "item", "tolist", "__bool__", "__float__",
     "__int__", "__index__", "__complex__", "__long__", "__nonzero__", "cfloat", "cdouble", "chalf", "nelement",
     "sparse_coo_tensor", "__radd__", "__rmul__", "__iadd__", "__isub__", "__imul__", "__idiv__", "__itruediv__",
     "__ifloordiv__", "__imod__", "__matmul__", "__add__", "__sub__", "__mul__", "__truediv__", "__neg__", "__pos__",
     "__abs__", "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__invert__", "__mod__", "__pow__",
     "conj", "resolve_conj", "resolve_neg", "__iand__", "__ior__", "__ixor__", "__div__", "broadcast_tensors")
)  # fmt: skip


# Not in the key of a call, so that they are asked again.
_ASKED = [
    "_get_cudnn_sdp_enabled", "_get_nnpack_enabled", "_get_cudnn_benchmark", "_get_cudnn_deterministic",
    "_get_cudnn_allow_tf32", "_get_cublas_allow_tf32", "_is_multithreading_enabled", "_is_view_replay_enabled",
    "is_anomaly_check_nan_enabled", "get_autocast_dtype", "get_autocast_gpu_dtype",
]  # fmt: skip


def _asked_again(name: str, function: Any) -> Rule:
    def rule(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
        if keywords:
            raise EagerError(f"calls {name}() by keyword")
        return lambda answer: call.checks.ask(f"torch.{name}()", function, tuple(values), answer)

    return rule


def _as_strided(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    """Counts from the beginning of the storage, and where an argument lies in its storage is not in the key."""
    if call.is_given(values[0]) or (call.is_fresh(values[0]) and is_view(values[0])):
        raise EagerError("calls as_strided() of an argument")
    return _op(call, values, keywords)


def _sparse(name: str) -> Rule:
    """Without a size, C++ finds one in the values of the indices."""
    before = 2 if name == "sparse_coo_tensor" else 3

    def rule(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
        if len(values) <= before and keywords.get("size") is None:
            raise WriteError(f"calls {name}() without a size, which then depends on values: give it one")
        return _op(call, values, keywords)

    return rule


def _know_ops(holder: Any, names: list[str], table: dict[int, Rule]) -> None:
    for name in names:
        one = getattr(holder, name, None) if table is FUNCTIONS else vars(holder).get(name)
        if name in _NOT_KNOWN or one is None or not callable(one):
            continue
        if name.startswith("sparse_") and name.endswith("_tensor") and type(one) in _OF_C:
            _know(table, _sparse(name), one)
        elif name in tensors.METHOD_QUESTIONS and table is METHODS:
            _know(METHODS, _question(name), one)
        elif (_is_aten(name) or name in _MORE_OPS) and type(one) in _OF_C:
            _know(table, _as_strided if name.startswith("as_strided") else _op, one)


def _question(name: str) -> Rule:
    def rule(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
        tensors.question(call, values[0], name, tensors.METHOD_QUESTIONS[name])
        return None

    return rule


_OF_C = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
_know_ops(c_functions.TensorBase, list(vars(c_functions.TensorBase)), METHODS)
_know_ops(c_functions.VARIABLE_FUNCTIONS, dir(c_functions.VARIABLE_FUNCTIONS), FUNCTIONS)
for _module in c_functions.OP_MODULES:
    for _name in dir(_module):
        _function = getattr(_module, _name)
        if type(_function) is types.BuiltinFunctionType and not _name.startswith("__") and _name != "_parse_to":
            _know(FUNCTIONS, _op, _function)


def _tensor_question(name: str) -> Rule:
    """torch.is_floating_point(x), torch.numel(x)."""

    def rule(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
        for tensor in tensors.tensors_in([*values, *keywords.values()]):
            tensors.question(call, tensor, name, TensorState.GEOMETRY)
        return None

    return rule


for _name in ("is_floating_point", "is_complex", "numel", "is_conj", "is_neg", "is_signed", "is_same_size",
              "is_inference", "is_distributed", "result_type", "promote_types", "can_cast",
              "_debug_has_internal_overlap"):  # fmt: skip
    if hasattr(torch, _name):
        _know(FUNCTIONS, _tensor_question(_name), getattr(c_functions.VARIABLE_FUNCTIONS, _name))

_know(FUNCTIONS, _tensor_question("dtype"), c_functions.parse_to)

# Modes: in the key of a call, and as they were when the call ends.
_OF_MODES = [
    "is_grad_enabled", "is_inference_mode_enabled", "is_autocast_enabled", "is_autocast_cache_enabled",
    "get_default_dtype", "get_num_threads", "_get_tracing_state", "_is_tracing", "is_anomaly_enabled",
    "_len_torch_function_stack", "_is_torch_function_enabled", "_is_torch_function_mode_enabled",
    "_is_any_autocast_enabled", "is_any_autocast_enabled", "is_autocast_available", "_is_autocast_available",
    "_is_flash_attention_available", "autocast_increment_nesting", "autocast_decrement_nesting",
    "set_autocast_enabled", "set_autocast_cache_enabled", "clear_autocast_cache",
    "_set_grad_enabled", "_get_deterministic_algorithms", "_are_functorch_transforms_active",
    "_len_torch_dispatch_stack", "_log_api_usage_once",
    "_get_deterministic_algorithms_warn_only", "is_autocast_cpu_enabled", "get_autocast_cpu_dtype",
    "_get_cudnn_enabled", "_get_mkldnn_enabled", "_get_flash_sdp_enabled", "_get_math_sdp_enabled",
    "_get_mem_efficient_sdp_enabled", "_has_torch_function", "_has_torch_function_unary",
    "_has_torch_function_variadic", "_accelerator_getAccelerator", "_get_accelerator", "_get_dispatch_mode",
    "_get_float32_matmul_precision", "_cuda_getDeviceCount",
    "_get_privateuse1_backend_name", "_dispatch_tls_is_dispatch_key_included",
]  # fmt: skip
_ASKS = ("is_", "_is_", "get_", "_get_", "are_", "_are_")


def _mode(name: str, function: Any) -> Rule:
    """A tape is a program with its modes: only where the program itself asks for one must that be as it was."""
    ask = _asked_again(name, function)

    def rule(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
        asks = call.writes is not None and not str(call.frame.f_globals.get("__name__")).startswith("torch.")
        return ask(call, values, keywords) if asks else None

    return rule


for _name in _OF_MODES + _ASKED:
    for _holder in c_functions.MODE_HOLDERS:
        _function = getattr(_holder, _name, None)
        if type(_function) is types.BuiltinFunctionType:
            _rule = _asked_again if _name in _ASKED else _mode if _name.startswith(_ASKS) else None
            _know(FUNCTIONS, _nothing if _rule is None else _rule(_name, _function), _function)


def _set_autocast_dtype(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    """Only the one of the CPU is in the key: all must be as they were when the call ends."""
    if len(values) != 2:
        raise EagerError("calls set_autocast_dtype() by keyword")
    before = torch.get_autocast_dtype(values[0])
    call.checks.ask(f"torch.get_autocast_dtype({values[0]!r})", torch.get_autocast_dtype, (values[0],), before)
    return None


_know(FUNCTIONS, _set_autocast_dtype, torch.set_autocast_dtype)


def _increment_version(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    """Allowed for a custom op that is about to write: a replay runs the op, which does the same."""
    if call.frame is None or call.frame.f_code is not torch.autograd.graph.increment_version.__code__:
        raise EagerError("calls torch._C._increment_version()")
    caller = call.frame.f_back
    if caller is None or caller.f_globals is not c_functions.CUSTOM_OPS_GLOBALS:
        raise EagerError("calls torch.autograd.graph.increment_version()")
    call.guard_whole(values[0])
    return None


_know(FUNCTIONS, _increment_version, c_functions.increment_version)


def _any_requires_grad(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    for tensor in tensors.tensors_in([*values, *keywords.values()]):
        tensors.ask(call, tensor, TensorState.REQUIRES_GRAD)
    return None


_know(FUNCTIONS, _any_requires_grad, c_functions.any_requires_grad)
_know(FUNCTIONS, _nothing, *c_functions.WITHOUT_EFFECT)


def _of_torch_alone(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    """Torch's own Python undoes what this does before the call ends; others may not."""
    if call.frame is None or not str(call.frame.f_globals.get("__name__")).startswith("torch."):
        raise EagerError("changes what torch keeps for itself")
    return None


_know(FUNCTIONS, _of_torch_alone, *c_functions.UNDONE_BY_TORCH, contextvars.copy_context)
for _name in dir(c_functions.FUNCTORCH):  # transforms: levels are entered and left, and tensors wrapped and unwrapped
    _function = getattr(c_functions.FUNCTORCH, _name)
    if type(_function) is types.BuiltinFunctionType and id(_function) not in FUNCTIONS:
        _know(FUNCTIONS, _op, _function)
_know(FUNCTIONS, _make, c_functions.enter_record_function)
# Guards of C++ that are entered and left.
for _kind in c_functions.CONTEXT_MANAGERS:
    CLASSES[_kind] = _make
    for _function in vars(_kind).values():
        if not isinstance(_function, str) and callable(_function):
            _know(METHODS, _nothing, _function)
            _know(FUNCTIONS, _nothing, getattr(_function, "__func__", _function))


CLASSES.update({torch.finfo: _nothing, torch.iinfo: _nothing, torch.device: _nothing, torch.Size: _make})


def _group(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    call.deep(values[0])
    for tensor in tensors.tensors_in(values[0]):
        tensors.question(call, tensor, "dtype", TensorState.GEOMETRY)

    def make_all(result: Any) -> None:
        todo = [result]
        while todo:
            value = todo.pop()
            if isinstance(value, (list, dict, tuple)):
                call.native.make(value)
                todo.extend(value.values() if isinstance(value, dict) else value)

    return make_all


_know(FUNCTIONS, _group, c_functions.group_tensors)


# Autograd


_HOOKS = TensorState.HOOKS | TensorState.ACCUMULATE_HOOKS


def _run_backward(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    """The engine, which runs in this thread on the CPU: hooks and functions of Python are followed."""
    if call.arguments_have_history():
        raise WriteError("runs a backward, and is given a tensor that has a history (grad_fn)")
    call.note_histories(values[1])
    if call.data_set:
        raise WriteError("runs a backward after it gave a tensor other data (`.data = ...`)")
    seen: set[Any] = set()
    for tensor in tensors.tensors_in(values[1]):
        for leaf in tensors.leaves(tensor, seen):
            bits = (
                TensorState.GRAD_FN
                | TensorState.GRAD
                | TensorState.HOOKS
                | TensorState.ACCUMULATE_HOOKS
                | TensorState.REQUIRES_GRAD
            )
            if call.writes is not None:
                bits &= ~TensorState.GRAD
            tensors.ask(call, leaf, bits | TensorState.RETAINS_GRAD)
            if call.writes is not None:
                continue  # a tape has the ops of hooks, and knows whether gradients are there
            if not call.is_fresh(leaf) and call.states[id(leaf)].bits & _HOOKS:
                raise EagerError("runs a backward to a tensor that has hooks")
            if call.is_given(leaf) and call.states[id(leaf)].bits & TensorState.GRAD:
                raise EagerError("adds to the gradient that an argument has")
    call.native.adopt_from(call.frame)
    mark = tensors.run_op(call, values[1:], keywords)

    def end(result: Any) -> None:
        call.native.adopt_from(None)
        mark(result)

    return end


_know(METHODS, _run_backward, c_functions.run_backward)


def _apply(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    """autograd.Function: its forward is Python, and followed; the context that it gets is new."""
    call.native.adopt_from(call.frame)
    mark = tensors.run_op(call, [one for one in values if isinstance(one, torch.Tensor)], {})
    for value in values[1:]:
        if not isinstance(value, torch.Tensor) and type(value) in (list, tuple, dict):
            call.deep(value)

    def end(result: Any) -> None:
        call.native.adopt_from(None)
        mark(result)

    return end


_know(METHODS, _apply, c_functions.CONTEXT_METHODS["apply"])


def _of_context(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    if not call.is_fresh(values[0]):
        raise EagerError("uses the context of an autograd.Function of another call")
    return None


_know(METHODS, _of_context, *(one for one in c_functions.CONTEXT_METHODS.values()
                              if isinstance(one, types.MethodDescriptorType)
                              and one.__name__ not in ("apply", "_sequence_nr", "_set_sequence_nr")))  # fmt: skip

# Ops that are called by way of torch.ops: the namespaces whose ops compute, and do nothing else.


_OF_OPERATORS = frozenset(("aten", "prims", "quantized", "_c10d_functional", "_c10d_functional_autograd", "c10d"))


def _is_known_operator(operator: Any) -> bool:
    """An op of torch, or a custom op whose kernel is a Python function, which is followed."""
    return operator.namespace in _OF_OPERATORS or dispatch.schema_of(operator).name in CUSTOM_OPS


def _redispatch(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    """OpOverload.redispatch(): the op goes on below autograd."""
    operator = call.frame.f_locals.get("self")
    if type(operator) is not dispatch.OpOverload or not _is_known_operator(operator):
        raise EagerError("redispatches an operator that is not known")
    return tensors.run_op(call, values[2:], keywords)


_know(FUNCTIONS, _nothing, *c_functions.schema_functions)
_know(FUNCTIONS, _redispatch, c_functions.redispatch)


def rule_of(function: Any) -> Rule | None:
    """The rule for a C function, or None."""
    found = FUNCTIONS.get(id(function))
    if found is not None:
        return found
    if function is compiler.autograd_compiler_switch():
        return _nothing  # switched off and on again around a backward
    owner = function.__self__
    if owner is not None and type(owner).__name__.startswith("pybind11_detail_function_record"):
        if function.__module__ == f"{c_functions.OPS_MODULE}profiler":
            return _make  # a range of the profiler
        if (function.__module__ or "").startswith(c_functions.OPS_MODULE):
            return _operator(function)
    return None


_DISPATCHED = frozenset(name.split(".")[0] for name in dispatch.all_op_names())


def _kernels(name: str) -> set[types.CodeType]:
    """The code of the kernels of an op of one's own."""
    kernels = (inspect.unwrap(one) for one in c_functions.kernels_of(CUSTOM_OPS[name]))
    return {one.__code__ for one in kernels if isinstance(one, types.FunctionType)}


def _operator(function: Any) -> Rule:
    """An op by way of torch.ops: a packet or an overload, which has no name but in the frame that calls it."""

    def rule(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
        owner: Any = call.frame.f_locals.get("self") if call.frame is not None else None
        name = dispatch.op_name(owner)
        is_op = type(owner) in (dispatch.OpOverloadPacket, dispatch.OpOverload)
        if not is_op or dispatch.function_of(owner) is not function:
            raise EagerError("calls an operator that is not known")
        space, name = name.split(".")[0].split("::")
        own = f"{space}::{name}" in CUSTOM_OPS  # whose kernel is a function of Python, which is followed
        known = space in _OF_OPERATORS and name not in _NOT_KNOWN and f"{space}::{name}" in _DISPATCHED
        if not own and not known:
            raise EagerError(f"calls torch.ops.{space}.{name}, which is not known")
        if name.startswith("as_strided"):
            return _as_strided(call, values, keywords)
        mark = tensors.run_op(call, values, keywords)
        if own and call.writes is not None:
            for code in _kernels(f"{space}::{name}"):
                call.native.pass_over(code)  # a tape runs the kernel again, with all that its Python does
        given = [*tensors.tensors_in(values), *tensors.tensors_in(keywords)]

        def end(result: Any) -> None:
            if not any(True for _ in tensors.tensors_in(result)):
                for tensor in given:  # a question to a tensor, which the tape does not see
                    tensors.question(call, tensor, "storage_offset" if "offset" in name else name, TensorState.GEOMETRY)
            mark(result)

        return end

    return rule


def _requires_grad(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    """Allowed for a tensor that the call did not make only if it changes nothing."""
    tensor = values[0]
    wanted = bool(values[1] if len(values) > 1 else keywords.get("requires_grad", True))
    if not call.is_fresh(tensor) and not tensors.is_old_gradient(call, tensor):
        if tensor.requires_grad is not wanted:
            raise EagerError(f"calls requires_grad_({wanted}) of a tensor that was made before the call")
        tensors.ask(call, tensor, TensorState.REQUIRES_GRAD)
    return None


_know(METHODS, _requires_grad, vars(c_functions.TensorBase)["requires_grad_"])


def _of_generator(name: str) -> Rule:
    """A state of random numbers is asked for, or set: ops of a tape, and of nothing else."""

    def rule(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
        if call.writes is None:
            raise EagerError(f"calls torch._C.Generator.{name}(), which is not known")
        call.sets_random_state = call.sets_random_state or name in ("set_state", "manual_seed", "seed")
        return tensors.run_op(call, values, keywords)

    return rule


def _make_generator(call: FollowedCall, values: list[Any], keywords: dict[str, Any]) -> Told:
    if call.writes is None:
        raise EagerError("makes a torch._C.Generator")
    return call.make


for _name in ("get_state", "set_state", "manual_seed", "initial_seed", "seed"):
    _know(METHODS, _of_generator(_name), vars(c_functions.Generator)[_name])
CLASSES[torch.Generator] = _make_generator


def rule_of_object(function: Any) -> Rule | None:
    """The rule for an object that is called. A scripted function is C++, and reads only its arguments."""
    if type(function) is not torch.jit.ScriptFunction:
        found: Rule | None = numpy_functions.rule_of_object(function)
        return found
    return None if any(function.graph.findAllNodes(name, True) for name in _EFFECTS_OF_SCRIPTS) else _op


_EFFECTS_OF_SCRIPTS = ("prim::Print", "prim::PythonOp", "aten::warn", "aten::manual_seed", "aten::seed", "aten::save")


numpy_functions.know(FUNCTIONS, METHODS, _kept)
distributed_functions.know(FUNCTIONS, CLASSES, OPAQUE, _kept)
del _module, _name, _function, _holder, _kind, _rule
