"""Where the time of a replay goes: its ops, those of one kind and one source line together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torchreel.errors import TorchreelError
from torchreel.graphs.measure_target import Target


@dataclass(frozen=True)
class Share:
    op: str
    layer: str  # of the kernels: how they are called
    line: str  # of the user's source
    calls: int
    ns: float


def shares_of(target: Target, graphed: Callable[..., Any]) -> tuple[list[Share], str]:
    """The greatest first; or why there are none."""
    try:
        costs = target.call(graphed.costs)  # type: ignore[attr-defined]
    except TorchreelError as error:
        return [], str(error)
    found: dict[tuple[str, str, str], list[float]] = {}
    for cost in costs:
        found.setdefault((cost.op, cost.layer, cost.line), []).append(cost.ns)
    shares = [Share(*who, len(several), sum(several)) for who, several in found.items()]
    return sorted(shares, key=lambda share: -share.ns), ""
