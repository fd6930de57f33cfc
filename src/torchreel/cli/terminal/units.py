"""Numbers as a person reads them."""

from __future__ import annotations


def time_text(ns: int) -> str:
    """A duration in the unit that torch.profiler would choose: 12.000us, 3.400ms, 5.600s."""
    if abs(ns) >= 1_000_000_000:
        return f"{ns / 1e9:.3f}s"
    if abs(ns) >= 1_000_000:
        return f"{ns / 1e6:.3f}ms"
    return f"{ns / 1e3:.3f}us"


def flops_unit(largest: int) -> tuple[str, int]:
    """The unit in which the largest number has one to three digits before the point, and what to divide by."""
    for name, power in (("TFLOPs", 12), ("GFLOPs", 9), ("MFLOPs", 6), ("KFLOPs", 3)):
        if largest >= 10**power:
            return name, 10**power
    return "FLOPs", 1
