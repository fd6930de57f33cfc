"""The modules of a TorchScript model as it holds them: what the hierarchies of its ops leave out.

An nn.ModuleList is never called, so a hierarchy names the modules in it by their numbers alone, and in a traced model
the source of the call does not tell which list it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

_LISTS = ("ModuleList", "ModuleDict")

Modules = tuple[tuple[str, str], ...]
"""Paths and classes, the outermost first."""


def with_lists(model: Any, modules: Modules) -> Modules:
    """The modules with the lists that hold them in their paths, where the model leaves no doubt which these are."""
    found: list[tuple[str, str]] = []
    holder, path = model, ""
    for (_, kind), name in zip(modules, _own_names(modules), strict=True):
        ways = [name] if not name else _ways(holder, name, kind)
        if len(ways) != 1:
            return modules
        path = ".".join(filter(None, (path, ways[0])))
        holder = _below(holder, ways[0])
        found.append((path, kind))
    return tuple(found)


def _own_names(modules: Modules) -> Iterator[str]:
    """The part of each path that is not the one before it."""
    before = ""
    for path, _ in modules:
        yield path.removeprefix(before).removeprefix(".")
        before = path


def _ways(holder: Any, name: str, kind: str) -> Sequence[str]:
    """The paths by which a module of this name can be reached: its own, or through lists."""
    called = _below(holder, name)
    if called is not None and called.original_name == kind:
        return [name]
    lists = [(list_name, child) for list_name, child in holder.named_children() if child.original_name in _LISTS]
    return [f"{list_name}.{way}" for list_name, child in lists for way in _ways(child, name, kind)]


def _below(holder: Any, path: str) -> Any:
    for name in filter(None, path.split(".")):
        holder = dict(holder.named_children()).get(name)
        if holder is None:
            return None
    return holder
