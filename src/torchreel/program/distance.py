"""How far two tensors are from each other, as far as their digests tell."""

from __future__ import annotations

import math

from torchreel.program.model import Digest


def distance(one: Digest, other: Digest) -> str:
    """A clause on two digests whose hashes differ: by how much the values are off."""
    parts = [_norms(one.norm, other.norm), _samples(one.samples, other.samples)]
    return "; ".join(part for part in parts if part)


def _norms(one: float, other: float) -> str:
    if _same(one, other):
        return f"its norm is the same, {one:.6g}"
    if not math.isfinite(one) or not math.isfinite(other):
        return f"its norm is {one:.6g} in one and {other:.6g} in the other"
    return f"its norm is off by {_relative(one, other):.2g} of its value ({one:.9g} and {other:.9g})"


def _samples(one: tuple[float, ...], other: tuple[float, ...]) -> str:
    pairs = list(zip(one, other, strict=False))
    off = [(a, b) for a, b in pairs if not _same(a, b)]
    if not pairs:
        return ""
    if not off:
        return f"all {len(pairs)} sampled values are the same"
    a, b = max(off, key=lambda pair: _gap(*pair))
    how_far = f"by up to {abs(a - b):.2g} " if math.isfinite(a - b) else ""
    return f"{len(off)} of {len(pairs)} sampled values differ, {how_far}({a:.9g} and {b:.9g})"


def _same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


def _gap(a: float, b: float) -> float:
    gap = abs(a - b)
    return math.inf if math.isnan(gap) else gap


def _relative(a: float, b: float) -> float:
    return abs(a - b) / max(abs(a), abs(b))
