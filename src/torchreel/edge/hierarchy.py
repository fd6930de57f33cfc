"""The hierarchies of modules that TorchScript and the lite interpreter write: text -> modules.

top(Net)::<unknown>.features(Sequential)::forward.0(Conv2d)::forward.SELF(Conv2d)::_conv_forward.aten::conv2d
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_STEP = re.compile(r"(?P<name>[^().:]+)\((?P<type>[^()]*)\)::")


def modules_of(steps: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Paths and classes from the outermost: calls of a module's own methods and of functions lead to no other."""
    path: list[str] = []
    modules: list[tuple[str, str]] = []
    for name, kind in steps:
        if name in ("SELF", "UNKNOWN_INSTANCE", "INSTANCE_NAME_UNKNOWN"):
            continue
        if name.lower() != "top" or modules:
            path.append(name)
        modules.append((".".join(path), kind))
    return tuple(modules)


def steps_of(text: str) -> list[tuple[str, str]]:
    """The names and classes of a hierarchy, or of one step of it."""
    return [(step["name"], step["type"]) for step in _STEP.finditer(text)]
