"""Sentences about what is not as it was when a tape was made, or what the function itself changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torchreel.errors import GuardError
from torchreel.tape.plain import is_plain, is_tensor

_ACTING = (torch.nn.Module, torch.optim.Optimizer, torch.Generator)
_LONGEST = 80  # letters of a value in a message


def changed(name: str, was: Any, now: Any) -> GuardError:
    if is_tensor(was):
        return GuardError(
            f"{name} is another tensor now than when the tape was made"
            f"{'' if is_tensor(now) else f' ({type(now).__name__})'}: the tape has the old one, so trace again, or "
            f"write new values into the old one with copy_()."
        )
    owner, _, key = name.rpartition(".")
    if key.endswith("_hooks"):
        return GuardError(
            f"Hooks of {owner} ({key.strip('_')}) have been added or removed since the tape was made, and a replay "
            "calls no hooks: trace again."
        )
    subject = name[0].upper() + name[1:] if " " in name else name
    if max(map(len, (_text(was), _text(now)))) > _LONGEST:
        return GuardError(
            f"{subject} is not what it was when the tape was made, and the function can read it: trace again."
        )
    return GuardError(
        f"{subject} was {_text(was)} when the tape was made, and is {_text(now)} now, and the function can read it: "
        "trace again."
    )


def refusal(name: str, was: Any, now: Any, is_used: Callable[[torch.Tensor], bool]) -> str:
    if is_plain(was) and is_plain(now):
        return (
            f"The function changed {name}{_from_to(was, now)}, which a replay would not: keep such values outside of "
            "what is traced, or in a tensor that is changed in place."
        )
    if is_tensor(was) and is_tensor(now) and is_used(was) and is_used(now):
        return (
            f"The function put another tensor of the state in the place of {name}, and its next call would read that "
            "one: exchange their values instead, with copy_(), and trace again."
        )
    if is_tensor(was) and is_used(was):
        return (
            f"The function read {name}, and left {'a new tensor' if is_tensor(now) else 'something else'} there, which "
            f"its next call would read: write into the old one instead, with {name}.copy_(...), and trace again."
        )
    if isinstance(was, _ACTING) and type(was) is type(now):
        return (
            f"The function put another {type(was).__name__} in the place of {name}, and its next call would use that "
            "one: keep them in their places, and trace again."
        )
    return ""


def _from_to(was: Any, now: Any) -> str:
    texts = repr(was), repr(now)
    return f" from {texts[0]} to {texts[1]}" if max(map(len, texts)) <= _LONGEST else ""


def _text(value: Any) -> str:
    if is_plain(value):
        return repr(value)
    return f"a {type(value).__name__}" + (f" {value.__qualname__}" if hasattr(value, "__qualname__") else "")
