"""What both sides of a trial must say in the same words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchreel._torch.dispatch import all_op_names


def kind_of(tensors: Sequence[Any]) -> str:
    """Inputs of the same sizes and dtypes are of one kind."""
    return ", ".join(f"{tuple(tensor.shape)}:{tensor.dtype}" for tensor in tensors)


def namespaces() -> set[str]:
    """The namespaces of all registered ops."""
    names = all_op_names()
    return {name.partition("::")[0] for name in names}
