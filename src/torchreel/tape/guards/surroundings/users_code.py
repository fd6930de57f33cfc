"""Whose code it is: the user's own, that of an installed library, or that of Python and torch."""

from __future__ import annotations

import functools
import os
import sys
from typing import Any

import torch

_NOT_THE_USERS = {"torch", "torchreel", "numpy", "builtins", "typing_extensions", *sys.stdlib_module_names}
_TORCH = os.path.join(os.path.dirname(torch.__file__), "")  # noqa: PTH118, PTH120


def is_users(thing: Any) -> bool:
    """Neither of Python nor of torch: what the one who traces has written, or a library that uses torch."""
    return is_users_module(getattr(thing, "__module__", None) or "")


@functools.cache
def is_installed(file: str) -> bool:
    return "site-packages" in file or "dist-packages" in file


@functools.cache
def is_of_torch(file: str) -> bool:
    """Such as the functions that torch's decorators put around one of the user's."""
    return file.startswith(_TORCH)


@functools.cache
def is_users_module(name: str) -> bool:
    return name.partition(".")[0] not in _NOT_THE_USERS
