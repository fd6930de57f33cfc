"""Where the time of a replay goes: its ops, those of one kind and one source line together."""

from __future__ import annotations

from dataclasses import dataclass

from torchreel.graphs.bench.target import Target
from torchreel.graphs.call.entry import Graphed
from torchreel.graphs.tree import status


@dataclass(frozen=True)
class Share:
    op: str
    layer: str  # of the kernels: how they are called
    line: str  # of the user's source
    calls: int
    ns: float


def shares_of(target: Target, fast: Graphed) -> tuple[list[Share], str]:
    """The greatest first; or why calls are not replayed."""
    skips = status(fast).skips
    if skips:
        return [], skips[0].reason
    if not hasattr(type(fast), "costs"):  # an engine that cannot tell its ops apart
        return [], ""
    found: dict[tuple[str, str, str], list[float]] = {}
    for cost in target.call(fast.costs):
        found.setdefault((cost.op, cost.layer, cost.line), []).append(cost.ns)
    shares = [Share(*who, len(several), sum(several)) for who, several in found.items()]
    return sorted(shares, key=lambda share: -share.ns), ""
