"""Names for nn.Modules: the class of the root, then attribute names, as in GPT2Model.h.0.attn.

The native core asks for a module's name when it first sees it called. A module is registered with
all that it holds, so that its parts know their path; one that is called by itself before its owner
is, becomes the owner's part as soon as that is seen.
"""

from __future__ import annotations

import functools
import itertools
import weakref
from collections import Counter

import torch

from torchreel import _core

_NO_PARENT = -1


def _class_of(module: torch.nn.Module) -> str:
    """The class that was written: TorchScript's modules are all of one class of its own."""
    if isinstance(module, torch.jit.ScriptModule):
        return str(module.original_name)
    return type(module).__name__


class ModuleNames:
    """Called by the native core with a module that it has not seen; gives the id of its name."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._ids: dict[int, int] = {}
        self._names: dict[int, int] = {}
        self._roots: dict[int, tuple[weakref.ref[torch.nn.Module], str]] = {}
        self._watched: dict[int, weakref.ref[torch.nn.Module]] = {}
        self._classes: Counter[str] = Counter()

    def __call__(self, module: torch.nn.Module) -> int:
        if id(module) not in self._names:
            self._find_among_roots(module)
        if id(module) not in self._names:
            name = _class_of(module)
            self._classes[name] += 1
            path = name if self._classes[name] == 1 else f"{name}#{self._classes[name]}"
            self._register_tree(module, path)
        return self._names[id(module)]

    def define(self, name: str) -> tuple[int, int]:
        """The ids of a name, and of a module, for a model that is no nn.Module."""
        number = next(self._numbers)
        return _core.define_module(number, _NO_PARENT, name, name), number

    def number(self, module: torch.nn.Module) -> int:
        """The id of a module that has been named."""
        return self._ids[id(module)]

    def _find_among_roots(self, module: torch.nn.Module) -> None:
        """A module may have been put into a known one since that was registered."""
        for reference, path in list(self._roots.values()):
            root = reference()
            if root is not None and any(part is module for part in root.modules()):
                self._register_tree(root, path)
                return

    def _register_tree(self, root: torch.nn.Module, root_path: str) -> None:
        paths: dict[str, int] = {}
        for name, module in root.named_modules():
            path = f"{root_path}.{name}" if name else root_path
            parent = paths[name.rpartition(".")[0]] if name else _NO_PARENT
            paths[name] = self._register(module, parent, path, is_root=not name)

    def _register(self, module: torch.nn.Module, parent: int, path: str, is_root: bool) -> int:
        key = id(module)
        known = self._ids.get(key)
        if known is not None and key not in self._roots:
            return known
        number = next(self._numbers) if known is None else known
        self._ids[key] = number
        self._names[key] = _core.define_module(number, parent, path, _class_of(module))
        if is_root:
            self._roots[key] = (weakref.ref(module), path)
        else:
            self._roots.pop(key, None)
        if known is None:
            self._watched[key] = weakref.ref(module, functools.partial(self._forget, key))
        return number

    def _forget(self, key: int, _: weakref.ref[torch.nn.Module]) -> None:
        """The address may become another module's."""
        for table in (self._ids, self._names, self._roots, self._watched):
            table.pop(key, None)
        _core.forget_module(key)
