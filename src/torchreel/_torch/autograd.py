"""Private parts of autograd."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Any

import torch
from torch._C import _FunctionBase as FunctionBase  # the base class of contexts of autograd.Function
from torch.autograd import forward_ad

__all__ = [
    "PRESERVES_VERSION",
    "FunctionBase",
    "accumulate_hooks",
    "backward_hooks",
    "enable_record_function",
    "forward_level",
    "is_functorch_wrapper",
    "other_operand",
    "saved_names",
    "set_versions",
]

# A tensor's hooks by id, or None: those that see its gradient, and those that run once it is accumulated.
backward_hooks = attrgetter("_backward_hooks")
accumulate_hooks = attrgetter("_post_accumulate_grad_hooks")

# Sets the versions of tensors: two tuples of one length.
set_versions = torch._C._autograd._unsafe_set_version_counter

# The code of the context manager that sets a tensor's version back.
PRESERVES_VERSION = torch.autograd.grad_mode._unsafe_preserve_version_counter.__init__.__code__

# Whether a tensor is one that a transform of torch.func wraps around another.
is_functorch_wrapper = torch._C._functorch.is_functorch_wrapped_tensor

# Switches all observers (RecordFunction) of this thread off and on.
enable_record_function = torch._C._autograd._enable_record_function

# The second operand of a multiplication, as its node in autograd's graph keeps it for backward.
other_operand = attrgetter("_saved_other")


def forward_level() -> int:
    """The level of forward mode that is entered, -1 if there is none. torch keeps it in a global of its module."""
    level: int = forward_ad._current_level
    return level


def saved_names(node: Any) -> Iterator[str]:
    """The attributes of a node of autograd's graph that are tensors saved for backward."""
    return (name.removeprefix("_raw") for name in dir(node) if name.startswith("_raw_saved_"))
