"""What a function may read and nobody can watch: it happens while recording, and not at a replay."""

from __future__ import annotations

import random
import types
from typing import Any

_MODULES = {
    "datetime": "reads the clock",
    "time": "reads the clock",
    "random": "draws numbers",
    "secrets": "draws numbers",
    "uuid": "draws numbers",
    "numpy.random": "draws numbers",
    "os": "reads the system",
    "socket": "reads the network",
    "subprocess": "runs programs",
    "logging": "writes",
}
_BUILTINS = {"input": "reads from the terminal", "open": "opens files", "print": "prints"}


def reason(value: Any) -> str | None:
    """Why what this does, or what it gives, is not watched."""
    kind = type(value)
    if issubclass(kind, types.ModuleType):
        return _MODULES.get(types.ModuleType.__getattribute__(value, "__name__"))
    if kind is types.MethodType:
        return _MODULES["random"] if type(value.__self__) is random.Random else None
    if kind is not types.BuiltinFunctionType:
        return None
    if issubclass(type(value.__self__), random.Random):
        return _MODULES["random"]
    if value.__module__ in ("builtins", "io", "_io"):
        return _BUILTINS.get(value.__name__)
    return _MODULES.get(value.__module__ or "")
