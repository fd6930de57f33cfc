"""The hierarchies of modules that TorchScript and the lite interpreter write: text -> modules.

    top(Net)::<unknown>.features(Sequential)::forward.0(Conv2d)::forward.SELF(Conv2d)::_conv_forward.aten::conv2d

A module that is held by an nn.ModuleList or nn.ModuleDict has only its last name there, since these are never called:
which of them holds it is read from the source of the call, `for layer in self.encoder: x = layer(x)`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_STEP = re.compile(r"(?P<name>[^().:]+)\((?P<type>[^()]*)\)::")
_MARKED = re.compile(r"^(?P<before> *)(?P<marks>~+) <--- HERE")
# self.blocks[1].conv, and the names in it.
_CHAIN = re.compile(r"self\.(?P<names>\w+(?:\.\w+|\[[^\[\]]*\])*)")
_NAME = re.compile(r"\w+|\[[^\[\]]*\]")
# Steps to a function, or to another method of the same module.
_NO_OTHER_MODULE = ("SELF", "UNKNOWN_INSTANCE", "INSTANCE_NAME_UNKNOWN")


def modules_of(steps: Sequence[tuple[str, str]], sources: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Paths and classes from the outermost. `sources` has the text around the call that each step makes."""
    path: list[str] = []
    modules: list[tuple[str, str]] = []
    for index, (name, kind) in enumerate(steps):
        if name in _NO_OTHER_MODULE:
            continue
        if name.lower() != "top" or modules:
            holder = container_of(sources[index - 1]) if 0 < index <= len(sources) else None
            path += [name] if holder is None else [holder, name]
        modules.append((".".join(path), kind))
    return tuple(modules)


def steps_of(text: str) -> list[tuple[str, str]]:
    """The names and classes of a hierarchy, or of one step of it."""
    return [(step["name"], step["type"]) for step in _STEP.finditer(text)]


def container_of(source: str) -> str | None:
    """The attribute that holds the module which is called where the source is marked, if it is a list's."""
    lines = source.splitlines()
    for number, line in enumerate(lines):
        mark = _MARKED.match(line)
        if mark is not None and number > 0:
            # The marks may end before the last bracket does.
            chain = _CHAIN.match(lines[number - 1], mark.start("marks"))
            if chain is not None:
                return _path(chain["names"])
            return _looped(lines[number - 1][mark.start("marks") : mark.end("marks")], lines[: number - 1])
    return None


def _path(names: str) -> str | None:
    """The path to what holds the last of the names."""
    return ".".join(name.strip("[ ]'\"") for name in _NAME.findall(names)[:-1]) or None


def _looped(called: str, above: list[str]) -> str | None:
    """The list over which a loop goes that gives the module this name."""
    if not called.isidentifier():
        return None
    loop = re.compile(rf"\bfor\b[^:]*\b{re.escape(called)}\b[^:]*\bin\b[^:]*\bself\.(?P<container>[\w.]+)")
    for line in reversed(above):
        found = loop.search(line)
        if found is not None:
            # enumerate(self.layers), self.blocks.items()
            return re.sub(r"\.(items|values|keys)$", "", found["container"])
    return None
