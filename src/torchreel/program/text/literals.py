"""Values of a program as Python writes them."""

from __future__ import annotations

import math
import re

from torchreel.errors import CorruptTapeError
from torchreel.program.model import Complex, Device, Formula, Named

_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_OPERATORS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "pow": "**"}


def plain(value: bool | int | float | str | Complex | Device | Named | None) -> str:
    """A value that stands for itself."""
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, Complex):
        return f"complex({plain(value.real)}, {plain(value.imag)})"
    if isinstance(value, Device):
        return f"torch.device({quoted(value.name)})"
    if isinstance(value, Named):
        return f"torch.{word(value.name)}"
    return quoted(value) if isinstance(value, str) else repr(value)


def quoted(text: str) -> str:
    """Text between double quotes."""
    inner = repr(text + "'")[1:-2]  # an apostrophe makes Python write it between double quotes, if none is inside
    return f'"{inner}"' if '"' not in text else repr(text)


def formula(value: Formula, names: dict[int, str]) -> str:
    """Python's own arithmetic in its order. `names` are those of numbers, by the op that gave them."""
    stack: list[str] = []
    try:
        for part in value.postfix:
            if isinstance(part, str) and part.startswith("item:"):
                stack.append(names[int(part.removeprefix("item:"))])
            elif part == "neg":
                stack.append(f"(-{stack.pop()})")
            elif part == "sqrt":
                stack.append(f"torch.sym_sqrt({stack.pop()})")  # math.sqrt, without another import
            elif isinstance(part, str):
                right, left = stack.pop(), stack.pop()
                stack.append(f"({left} {_OPERATORS[part]} {right})")
            else:
                stack.append(plain(part) if math.copysign(1, part) > 0 else f"({plain(part)})")
        (text,) = stack
    except (IndexError, KeyError, ValueError) as error:
        raise CorruptTapeError(
            f"The formula {value.postfix!r} of the tape makes no sense ({error!r}): record the tape again."
        ) from None
    return text


def word(name: str) -> str:
    """A name that goes into the text as it is, so it must be no more than a name."""
    if not _WORD.fullmatch(name):
        raise CorruptTapeError(f"{name[:80]!r} in the tape is no name that torch has: record the tape again.")
    return name


def comment(text: str) -> str:
    """Text that stays behind its `#`, whatever it holds."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
