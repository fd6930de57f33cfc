"""One op of a program that was exported, as its file describes it: what it is given, and what that costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from torchreel.edge.formats.adapter import TensorType

# Sizes that a damaged file makes up: a column of 64 bits could not hold it.
_MOST = 1 << 63

Argument = TensorType | bool | int | None


@dataclass(frozen=True)
class OpCall:
    """One call of an op of torch."""

    name: str
    """Without overload: aten::convolution."""
    arguments: tuple[Argument, ...]
    """The arguments of the schema, in its order; None stands for what no formula asks for, too."""
    output: TensorType | None

    @property
    def inputs(self) -> tuple[TensorType, ...]:
        return tuple(one for one in self.arguments if isinstance(one, TensorType))

    def flops(self) -> int | None:
        """A multiplication and an addition are two. None for an op without a formula."""
        count = self._linear() if self.name == "aten::linear" else self._by_formula()
        return count if count is not None and count < _MOST else None

    def _by_formula(self) -> int | None:
        formula = _formula(self.name)
        if formula is None or self.output is None:
            return None
        try:
            return int(formula(*map(_on_meta, self.arguments), out_val=_on_meta(self.output)))
        except Exception:  # sizes that do not fit the op, in a file that is not what it says: no formula applies
            return None

    def _linear(self) -> int | None:
        """Torch takes it apart before it counts."""
        if self.output is None or not self.inputs or not self.inputs[0].sizes:
            return None
        return 2 * prod(self.output.sizes) * self.inputs[0].sizes[-1]


def _formula(name: str) -> Callable[..., int] | None:
    space, _, op = name.partition("::")
    packet = getattr(torch.ops.aten, op, None) if space == "aten" else None
    found: Callable[..., int] | None = flop_registry.get(packet)
    return found


def _on_meta(argument: Argument) -> Any:
    """Tensors that have sizes and no data."""
    if not isinstance(argument, TensorType):
        return argument
    return torch.empty(argument.sizes, device="meta")
