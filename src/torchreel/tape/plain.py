"""Values that say all of themselves: numbers, texts, and tuples of such."""

from __future__ import annotations

from typing import Any

import torch

from torchreel.tape.likeness import likeness

WIDEST = 256  # parts of a container that are looked at
PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)


def is_tensor(value: Any) -> bool:
    return issubclass(type(value), torch.Tensor)  # an object may say anything of its class, or nothing


def is_plain(value: Any) -> bool:
    if type(value) is tuple:
        return len(value) <= WIDEST and all(map(is_plain, value))
    return isinstance(value, PLAIN)


def is_alike(was: Any, now: Any) -> bool:
    """Whether one may stand for the other: plain values that are equal, and tuples of the same things."""
    if type(was) is tuple and type(now) is tuple:
        return len(was) == len(now) and all(a is b or is_alike(a, b) for a, b in zip(was, now, strict=True))
    return isinstance(was, PLAIN) and likeness(was) == likeness(now)


def joined(name: str, key: Any) -> str:
    text = str(key) if is_plain(key) else type(key).__name__
    return f"{name}.{text}" if name else text
