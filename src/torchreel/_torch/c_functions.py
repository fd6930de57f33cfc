"""C functions and types of torch that Python code may call, for the tables of `guards/` and for what it tells apart.

The tables have the names; here is where those names are found.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._library import custom_ops

# Tables

# The class of C under torch.Tensor: its methods are in its __dict__.
TensorBase = torch._C.TensorBase

# The functions of torch that are ops.
VARIABLE_FUNCTIONS = torch._C._VariableFunctions

# The modules of C under torch.nn.functional, torch.linalg, torch.fft, torch.special, torch.sparse and torch.nested.
OP_MODULES = (torch._C._nn, torch._C._linalg, torch._C._fft, torch._C._special, torch._C._sparse, torch._C._nested)

# Transforms of torch.func.
FUNCTORCH = torch._C._functorch

# Where functions are found that ask for modes, and set them.
MODE_HOLDERS = (torch._C, VARIABLE_FUNCTIONS, torch)

# The class of C under torch.Generator.
Generator = torch._C.Generator

# Ops that Python code registered with torch.library.custom_op: OPDEFS by name ("mylib::op").
CUSTOM_OPS: dict[str, Any] = custom_ops.OPDEFS

# The globals of the code that runs custom ops.
CUSTOM_OPS_GLOBALS = vars(custom_ops)

# The __module__ of the C functions behind torch.ops begins so, and ends with the namespace.
OPS_MODULE = "torch._ops."

# Types that are compared by identity alone.
OPAQUE_TYPES: set[type] = {torch._C.DispatchKeySet, torch._C.FunctionSchema, torch._C.Argument}

# The type of an instance method of pybind11.
INSTANCE_METHOD = type(vars(torch._C._InferenceMode)["__enter__"])

# Functions

# Of the arguments of Module.to().
parse_to = torch._C._nn._parse_to

# Counts that a tensor was written.
increment_version = torch._C._increment_version

# Whether any of these tensors requires a gradient.
any_requires_grad = torch._C._any_requires_grad

# Lists of tensors by device and dtype, for optimizers.
group_tensors = torch._C._group_tensors_by_device_and_dtype

# Groups of methods of C are functions of pybind11, under __func__.
schema_functions = [one.__func__ for one in vars(torch._C.FunctionSchema).values() if hasattr(one, "__func__")]
redispatch = vars(torch._C._DispatchOperatorHandle)["redispatch_boxed"].__func__

# Opens a range of the profiler.
enter_record_function = torch.ops.profiler._record_function_enter_new._op

# The engine's run_backward(), a method descriptor.
run_backward = vars(type(torch.autograd.Variable._execution_engine))["run_backward"]

# The methods of contexts of autograd.Function by name, method descriptors among them.
CONTEXT_METHODS = vars(torch._C._FunctionBase)

# Python code of torch asks them and sets them back, or no result depends on what they do.
WITHOUT_EFFECT: list[Any] = [
    torch._C._dynamo.eval_frame.set_eval_frame,
    FUNCTORCH.maybe_current_level,
    FUNCTORCH.unwrap_if_dead,
    torch._C._enter_dual_level,
    torch._C._exit_dual_level,
    torch._C._is_fwd_grad_enabled,
    torch._C._set_fwd_grad_enabled,
    *([torch._C._any_output_is_alias_to_input_or_output]
      if hasattr(torch._C, "_any_output_is_alias_to_input_or_output") else []),
    *(getattr(torch._C._autograd, name) for name in dir(torch._C._autograd)
      if name.startswith("_saved_tensors_hooks_") and "push" not in name and "pop" not in name),
]  # fmt: skip

# Torch's own Python undoes what they do before a call ends; others may not.
UNDONE_BY_TORCH = (
    torch._C._autograd._unsafe_set_version_counter,
    torch._C._stash_obj_in_tls,
    torch._C._remove_obj_from_tls,
)

# Guards of C++ that are entered and left by `with`.
CONTEXT_MANAGERS: frozenset[Any] = frozenset(
    getattr(torch._C, name)
    for name in ("DisableTorchFunctionSubclass", "DisableTorchFunction", "_DisableFuncTorch", "_InferenceMode",
                 "_AutoDispatchBelowAutograd", "_DisableAutocast", "_RestorePythonTLSSnapshot",
                 "_DisableTorchDispatch")
    if hasattr(torch._C, name)
)  # fmt: skip


def kernels_of(custom_op: Any) -> list[Any]:
    """The functions that a custom op was registered with: for all devices, and for single ones."""
    return [custom_op._init_fn, *custom_op._backend_fns.values()]
