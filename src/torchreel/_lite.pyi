"""Modules of the lite interpreter: native/edge/lite.cpp."""

from typing import Any

def ops(module: Any) -> list[tuple[int, int]]:
    """Each op's debug handle, and how many inputs it is given, -1 if unknown."""

def location(module: Any, handle: int) -> tuple[str, str]:
    """The hierarchy of modules and the traceback of a debug handle, as torch tells them."""
