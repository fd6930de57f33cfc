"""Private parts of the dispatcher and of modes."""

from __future__ import annotations

import importlib
from operator import attrgetter
from typing import Any

import torch
from torch._C import FunctionSchema as FunctionSchema
from torch._higher_order_ops.utils import HigherOrderOperator as HigherOrderOperator  # cond, scan and their like
from torch._ops import OpOverload as OpOverload
from torch._ops import OpOverloadPacket as OpOverloadPacket  # all overloads of one name
from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode

# Ops

# The schema of an op by name ("aten::add") and overload ("Tensor", or ""). Raises RuntimeError for unknown ops.
find_schema = torch._C._get_schema

# The schema of an OpOverload.
schema_of = attrgetter("_schema")

# The C function that an OpOverload or OpOverloadPacket calls.
function_of = attrgetter("_op")

# The names of all registered ops, with overloads: "aten::add.Tensor".
all_op_names = torch._C._dispatch_get_all_op_names

# Higher order operators by name. It grows when torch imports more of them.
higher_order_ops: dict[str, Any] = torch._ops._higher_order_ops


def op_name(op: Any, default: Any = "") -> Any:
    """The name of an OpOverload ("aten::add.Tensor") or OpOverloadPacket ("aten::add")."""
    return getattr(op, "_qualified_op_name" if type(op) is OpOverloadPacket else "_name", default)


def packet_name(packet: Any) -> str | None:
    """The name of an OpOverloadPacket: "aten::add". None if the object is none."""
    name: str | None = getattr(packet, "_qualified_op_name", None)
    return name


# Keys

DispatchKey = torch._C.DispatchKey
DispatchKeySet = torch._C.DispatchKeySet

# The key on which the tape's fallback stands, below Python and above the backends. In 2.13 torch has no kernel there.
# Up to 2.12 the key is above Python; later versions want it for a FakeTensor in C++.
TAPE_KEY = torch._C._parse_dispatch_key("Fake")
TAPE_KEYS = DispatchKeySet(TAPE_KEY)

# No ops of this thread see these keys. A context manager, of a DispatchKeySet.
exclude_keys = torch._C._ExcludeDispatchKeyGuard

# Sets the keys that this thread includes and excludes. A context manager, of two DispatchKeySets.
force_keys = torch._C._ForceDispatchKeyGuard

# The keys that this thread includes.
included_keys = torch._C._dispatch_tls_local_include_set

# Ops go to the kernels below autograd. A context manager.
below_autograd = torch._C._AutoDispatchBelowAutograd

# Autocast is off. A context manager.
disable_autocast = torch._C._DisableAutocast

# Modes

# __torch_function__ of modes and subclasses is off. A context manager.
disable_torch_function = torch._C.DisableTorchFunction

# __torch_function__ of subclasses is off. A context manager.
disable_torch_function_of_subclasses = torch._C.DisableTorchFunctionSubclass

# All modes of __torch_dispatch__ are off. A context manager.
disable_dispatch_modes = torch.utils._python_dispatch._disable_current_modes

# Whether a tensor's class is made of other tensors, and says of which (__tensor_flatten__).
is_wrapper_subclass = torch.utils._python_dispatch.is_traceable_wrapper_subclass


def fake_tensor_mode() -> Any:
    """The FakeTensorMode of this thread, or None."""
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE)


def import_schema_check() -> None:
    """Import what torch imports where it switches modes off for the first time."""
    importlib.import_module("torch._subclasses.schema_check_mode")
