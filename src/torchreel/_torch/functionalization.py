"""Functionalization: tensors are wrapped, and ops that write become ops that make new tensors."""

from __future__ import annotations

import torch

# Wraps a tensor.
wrap = torch._to_functional_tensor

# Whether a tensor is wrapped.
is_wrapped = torch._is_functional_tensor

# Switches the rewriting of ops on and off in this thread. `enable` takes reapply_views.
enable = torch._enable_functionalization
disable = torch._disable_functionalization


def unwrap(tensor: torch.Tensor) -> torch.Tensor:
    """The value of a wrapped tensor, with all that was written to it and to its views."""
    torch._sync(tensor)
    return torch._from_functional_tensor(tensor)


def replace(target: torch.Tensor, value: torch.Tensor) -> None:
    """Let a wrapped tensor, and all that are views of the same, hold another value."""
    torch._functionalize_replace(target, value)
    torch._functionalize_commit_update(target)
    torch._functionalize_sync(target)
