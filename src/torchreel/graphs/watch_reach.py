"""Finds what a function depends on besides its arguments: the state of Python that a recording takes for granted."""

from __future__ import annotations

import builtins
import functools
import sys
import types
from collections.abc import Iterable
from typing import Any

import torch
from torch.nn.modules import module as module_hooks
from torch.optim import optimizer as optimizer_hooks

from torchreel.graphs import watch_unseen
from torchreel.graphs.watch_calls import Ran, is_foreign
from torchreel.graphs.watch_nodes import Nodes
from torchreel.graphs.watch_objects import (
    MISSING,
    find,
    finds_by_code,
    instance_dict,
    is_a,
    is_data_descriptor,
    is_member,
    is_name,
    is_ordinary,
    mro,
)
from torchreel.graphs.watch_reads import GLOBAL, IMPORT, SELF, Read, reads

# Of a module: what no call of it reads, or what changes only along with another of these.
_NOT_READ = frozenset(
    (
        "_non_persistent_buffers_set",
        "_forward_hooks_with_kwargs",
        "_forward_hooks_always_called",
        "_forward_pre_hooks_with_kwargs",
        "_state_dict_hooks",
        "_state_dict_pre_hooks",
        "_load_state_dict_pre_hooks",
        "_load_state_dict_post_hooks",
    )
)
_OF_OPTIMIZER = ("param_groups", "state", "_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
_TENSORS = ("_parameters", "_buffers", "_modules")
_FEW = 64  # items of a container in which modules are looked for


class Reach:
    """Notes as nodes what is found. With `static`, functions that were not seen to run are followed too."""

    def __init__(self, nodes: Nodes, static: bool, born: Iterable[object]) -> None:
        self._nodes = nodes
        self._static = static
        self._born = {id(thing) for thing in born}
        self._modules: set[int] = set()
        self._codes: set[tuple[int, int]] = set()
        self.unwatched: dict[str, None] = {}
        self._add_global_hooks()

    def add_entry(self, function: Any) -> None:
        """What is called: a function, a method, a module, or another object that can be called."""
        if type(function) is functools.partial:
            self.add_entry(function.func)
            for value in (*function.args, *function.keywords.values()):
                self._reach(value, type(value).__name__)
        elif type(function) is types.MethodType:
            self._add_method(function.__func__, function.__self__)
        elif type(function) is types.FunctionType:
            self._add_function(function, None, mortal=False)
        else:
            self._add_method(find(type(function), "__call__")[1], function)

    def _add_method(self, function: Any, thing: Any) -> None:
        if is_a(thing, torch.nn.Module):
            self._add_module(thing, type(thing).__name__, mortal=False)
        if type(function) is types.FunctionType:
            self._add_function(function, thing, mortal=False)

    def add_ran(self, ran: Ran) -> None:
        """A code that was seen to run."""
        for function in ran.functions:
            # One that is made within another is made anew by each call, or else somebody's name for it is watched.
            self._nodes.add_function(function, "<locals>" in ran.code.co_qualname)
        selves = [one for one in ran.selves if id(one) not in self._born]
        self._add_code(ran.code, ran.globals, ran.functions, selves)

    def add_modules(self, modules: Iterable[torch.nn.Module]) -> None:
        for module in modules:
            self._add_module(module, type(module).__name__, id(module) in self._born)

    def add_optimizer(self, optimizer: torch.optim.Optimizer, label: str | None = None) -> None:
        node = self._nodes.add_instance(optimizer, label or type(optimizer).__name__, label is not None)
        if node is not None:
            node.add(*_OF_OPTIMIZER)
            self._add_namespace(optimizer_hooks, "_global_optimizer_pre_hooks", "_global_optimizer_post_hooks")

    def _add_global_hooks(self) -> None:
        names = [name for name in vars(module_hooks) if name.startswith("_global_") and "registration" not in name]
        self._add_namespace(module_hooks, *names)

    def _add_namespace(self, module: types.ModuleType, *names: str) -> None:
        self._nodes.add_namespace(module.__dict__, module, module.__name__).add(*names)

    def _add_module(self, module: torch.nn.Module, label: str, mortal: bool) -> None:
        content = instance_dict(module)
        node = self._nodes.add_instance(module, label, mortal)
        if content is None or node is None or id(module) in self._modules:
            return
        self._modules.add(id(module))
        node.add("forward", *(name for name in filter(is_name, content) if name not in _NOT_READ))
        forward = self._class_attribute(type(module), "forward")
        if self._static and type(forward) is types.FunctionType:
            self._add_function(forward, module)
        children = content.get("_modules")
        for name, child in dict(children or {}).items():
            if is_a(child, torch.nn.Module):
                self._add_module(child, f"{label}.{name}", mortal)

    def _add_function(self, function: types.FunctionType, thing: Any, mortal: bool = True) -> None:
        if not is_foreign(function.__code__.co_filename):
            self._nodes.add_function(function, mortal)
            selves = [] if thing is None else [thing]
            self._add_code(function.__code__, function.__globals__, [function], selves)

    def _add_code(
        self, code: types.CodeType, names: dict[str, Any], functions: list[types.FunctionType], selves: list[Any]
    ) -> None:
        known = {(id(code), id(one)) for one in (selves or functions)}
        if known and known <= self._codes:
            return
        self._codes |= known
        where = f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno})"
        found = reads(code)
        for read in found.read:
            for value, label in self._starts(read, code, names, functions, selves):
                self._walk(value, label, read.attributes, where)
        for read in found.written:
            if read.root == SELF and not selves:
                continue  # an object that the call made for itself
            path = ".".join((read.name, *read.attributes))
            self.unwatched[f"{path} is set by {where}: that happens while recording, and not at a replay."] = None

    def _starts(
        self,
        read: Read,
        code: types.CodeType,
        names: dict[str, Any],
        functions: list[types.FunctionType],
        selves: list[Any],
    ) -> list[tuple[Any, str]]:
        """What a read begins with; several where a method ran on several objects."""
        if read.root == SELF:
            return [(one, self._nodes.label(one) or type(one).__name__) for one in selves]
        if read.root == GLOBAL:
            return [(self._global(read.name, names, functions), read.name)]
        if read.root == IMPORT:
            top = read.name.partition(".")[0]
            return [(sys.modules.get(top, MISSING), top)]
        if read.name not in code.co_freevars:
            return []
        place = code.co_freevars.index(read.name)
        return [(_content(function.__closure__[place]), read.name) for function in functions if function.__closure__]

    def _global(self, name: str, names: dict[str, Any], functions: list[types.FunctionType]) -> Any:
        module = names.get("__name__")
        owner: Any = sys.modules.get(module) if type(module) is str else None
        if owner is None or instance_dict(owner) is not names:
            owner = functions[0] if functions else None
        if owner is not None:
            self._nodes.add_namespace(names, owner, "").add(name)
        if name in names:
            return names[name]
        if name in builtins.__dict__:
            self._nodes.add_namespace(builtins.__dict__, builtins, "builtins").add(name)
        return builtins.__dict__.get(name, MISSING)

    def _walk(self, value: Any, label: str, attributes: tuple[str, ...], where: str) -> None:
        for name in attributes:
            if value is MISSING:
                return
            owner, value = value, self._attribute(value, label, name)
            label = f"{label}.{name}"
            if self._static and type(value) is types.FunctionType and not is_a(owner, (type, types.ModuleType)):
                self._add_function(value, owner)
        if value is not MISSING:
            self._reach(value, label)
            unseen = watch_unseen.reason(value)
            if unseen is not None:
                self.unwatched[f"{label}, in {where}, {unseen}: that happens while recording, not at a replay."] = None

    def _attribute(self, thing: Any, label: str, name: str) -> Any:
        """Notes that an attribute is read; gives it where that takes no code of the object."""
        if is_a(thing, types.ModuleType):
            content = instance_dict(thing) or {}
            self._nodes.add_namespace(content, thing, label).add(name)
            return content.get(name, MISSING)
        if is_a(thing, type):
            return self._class_attribute(thing, name)
        if is_a(thing, torch.Tensor) or id(thing) in self._born:
            return MISSING
        if finds_by_code(thing, name) and not is_a(thing, torch.nn.Module):
            self._add_whole(thing, label, name)
        return self._instance_attribute(thing, label, name) if is_ordinary(thing) else MISSING

    def _add_whole(self, thing: Any, label: str, name: str) -> None:
        """All attributes of an object: its code may use any to find another."""
        content = instance_dict(thing)
        node = None if content is None else self._nodes.add_instance(thing, label, True)
        if content is None or node is None:
            self.unwatched[f"{label}.{name}: {type(thing).__name__} finds its attributes by code of its own."] = None
        else:
            node.add(*filter(is_name, content))

    def _instance_attribute(self, thing: Any, label: str, name: str) -> Any:
        of_class = find(type(thing), name)[1]
        if is_member(of_class):
            if self._nodes.add_member(thing, label, of_class, name):
                return _member(thing, of_class)
            return self._cannot_follow(thing, f"{label}.{name}")
        if of_class is not MISSING and is_data_descriptor(of_class):
            return MISSING  # a property: if it ran, its function was seen
        content = instance_dict(thing)
        if content is not None:
            node = self._nodes.add_instance(thing, label, True)
            if node is None:
                return self._cannot_follow(thing, f"{label}.{name}")
            node.add(name)
            if name in content:
                return content[name]
            if is_a(thing, torch.nn.Module):
                for held in (content.get(kind) or {} for kind in _TENSORS):
                    if name in held:
                        return held[name]
        return self._class_attribute(type(thing), name)

    def _cannot_follow(self, thing: Any, path: str) -> Any:
        self.unwatched[f"{path}: a {type(thing).__name__} cannot be followed without keeping it alive."] = None
        return MISSING

    def _class_attribute(self, kind: type, name: str) -> Any:
        owner, value = find(kind, name)
        if owner is None:
            return MISSING
        for base in mro(kind):
            self._nodes.add_class(base, name)
            if base is owner:
                break
        return value

    def _reach(self, value: Any, label: str) -> None:
        """What there is to watch in a value besides its being the same."""
        if is_a(value, torch.nn.Module):
            self._add_module(value, label, mortal=True)
        elif is_a(value, torch.optim.Optimizer):
            self.add_optimizer(value, label)
        elif type(value) is types.FunctionType:
            if self._static:
                self._add_function(value, None)
        elif type(value) is types.MethodType:
            if self._static and type(value.__func__) is types.FunctionType:
                self._add_function(value.__func__, value.__self__)
        elif type(value) is functools.partial:
            self._reach(value.func, label)
        elif type(value) in (list, tuple, dict) and len(value) <= _FEW:
            self._reach_items(value, label)

    def _reach_items(self, value: Any, label: str) -> None:
        for key, item in list(value.items() if type(value) is dict else enumerate(value)):
            if is_a(item, (torch.nn.Module, torch.optim.Optimizer)):
                self._reach(item, f"{label}[{key!r}]" if type(key) in (int, str) else label)


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing was assigned to the variable yet
        return MISSING


def _member(thing: Any, descriptor: Any) -> Any:
    try:
        return descriptor.__get__(thing)
    except AttributeError:
        return MISSING
