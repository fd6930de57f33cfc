"""What a backend reports, looked at before it is taken: a reel must be able to hold it."""

from __future__ import annotations

import math
from typing import Any

import torch

from torchreel.errors import OptionError

_LARGEST = 2**63 - 1


def nanoseconds(name: str, microseconds: Any) -> int:
    """A time that was given in microseconds."""
    is_number = isinstance(microseconds, (int, float)) and not isinstance(microseconds, bool)
    if not is_number or not math.isfinite(microseconds) or abs(microseconds) > _LARGEST / 1000:
        raise OptionError(f"{name}={microseconds!r} is no time: give microseconds, as a number.")
    rounded: int = round(microseconds * 1000)
    return rounded


def check_numbers(**given: Any) -> None:
    for name, value in given.items():
        if not isinstance(value, int) or abs(value) > _LARGEST:
            raise OptionError(f"{name}={value!r} is no whole number of 64 bits: give one.")


def check_texts(**given: Any) -> None:
    for name, value in given.items():
        if not isinstance(value, str):
            raise OptionError(f"{name}={value!r} is no text: give a name.")
        if any("\ud800" <= letter <= "\udfff" for letter in value):
            raise OptionError(
                f"{name}={value!r} has half of a letter in it, which no file can hold: give another name."
            )


def address(pointer: Any) -> int:
    """An address as a reel holds it: with a sign."""
    if not isinstance(pointer, int) or not -(2**63) <= pointer < 2**64:
        raise OptionError(f"ptr={pointer!r} is no address: give a whole number of 64 bits.")
    return pointer if pointer < 2**63 else pointer - 2**64


def device_name(device: Any) -> str:
    try:
        return str(torch.device(device))
    except (RuntimeError, TypeError, OverflowError):
        raise OptionError(f"device={device!r} is no device: give a torch.device or its name, such as 'cpu'.") from None
