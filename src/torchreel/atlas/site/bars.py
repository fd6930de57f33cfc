"""A cost as a bar: own time forward, own time backward and, if asked for, the same two of the calls below.

Bars are drawings with sizes as attributes, because the policy of the pages forbids styles in them.
"""

from __future__ import annotations

from collections.abc import Iterable

from torchreel.atlas.model import Costs

_HEIGHT = 10


def bar(costs: Costs, scale: int, width: int, below: bool = False) -> str:
    """The bar of a cost; `scale` is the time that is as long as `width`."""
    if scale <= 0:
        return ""
    at = 0.0
    parts = []
    for mark, ns in (("f", costs.forward_ns), ("b", costs.backward_ns), *(_below(costs) if below else ())):
        size = ns * width / scale
        if size < 0.05:
            continue
        x = f' x="{at:.1f}"' if at else ""
        parts.append(f'<rect class="{mark}"{x} width="{size:.1f}" height="{_HEIGHT}"/>')
        at += size
    if not parts:
        return ""
    # The parts are numbers alone: there is nothing to escape.
    return f'<svg width="{width}" height="{_HEIGHT}" aria-hidden="true">{"".join(parts)}</svg>'


def _below(costs: Costs) -> tuple[tuple[str, int], ...]:
    """What was spent in the calls below: in one piece, where it is not known how much of it is backward."""
    rest = max(costs.total_ns - costs.self_ns, 0)
    if costs.total_backward_ns is None:
        return (("t", rest),)
    backward = costs.total_backward_ns - costs.backward_ns
    return (("tf", rest - backward), ("tb", backward))


def scale_of(costs: Iterable[Costs | None], below: bool = False) -> int:
    """The longest of these bars, as a time."""
    return max((max(cost.self_ns, cost.total_ns if below else 0) for cost in costs if cost is not None), default=0)
