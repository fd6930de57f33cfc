"""How far two tensors are from each other, as far as their digests tell."""

from __future__ import annotations

import math

from torchreel.program.model import Digest


def distance(one: Digest, other: Digest, labels: tuple[str, str] = ("in one", "in the other")) -> str:
    """A clause on two digests whose hashes differ: by how much the values are off."""
    parts = [_norms(one.norm, other.norm, labels), _samples(one.samples, other.samples, labels)]
    return ", ".join(part for part in parts if part)


def _norms(one: float, other: float, labels: tuple[str, str]) -> str:
    if _same(one, other):
        return f"its norm is the same ({one:.6g})"
    text = f"its norm is {_pair(one, other, labels)}"
    if not math.isfinite(one) or not math.isfinite(other):
        return text
    return f"{text}, off by {abs(one - other) / max(abs(one), abs(other)):.2g} of its value"


def _samples(one: tuple[float, ...], other: tuple[float, ...], labels: tuple[str, str]) -> str:
    pairs = list(zip(one, other, strict=False))
    off = [(a, b) for a, b in pairs if not _same(a, b)]
    if not pairs:
        return ""
    if not off:
        return (
            f"and {len(pairs)} sampled values are the same" if len(pairs) > 1 else "and the sampled value is the same"
        )
    a, b = max(off, key=lambda pair: _gap(*pair))
    how_far = f", by up to {abs(a - b):.2g}" if math.isfinite(a - b) else ""
    return f"and {len(off)} of {len(pairs)} sampled values differ{how_far} ({_pair(a, b, labels)})"


def _pair(one: float, other: float, labels: tuple[str, str]) -> str:
    return f"{one:.9g} {labels[0]} and {other:.9g} {labels[1]}"


def _same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


def _gap(a: float, b: float) -> float:
    gap = abs(a - b)
    return math.inf if math.isnan(gap) else gap
