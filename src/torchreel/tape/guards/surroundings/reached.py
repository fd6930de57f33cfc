"""All that a function can reach in Python, as values to guard.

The search begins at the function and follows what its code can name: closures, the globals that it loads, attributes of
objects and classes whose names stand in code that it can call. What is read in other ways is not seen.
"""

from __future__ import annotations

import argparse
import builtins
import contextlib
import functools
import os
import random
import sys
import threading
import types
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import numpy
import torch

from torchreel._cpython.interpreter import CachedFunction, global_random
from torchreel._torch.modules import ABOUT_PARTS, PARTS, buffers_of, modules_of, parameters_of
from torchreel.tape.guards.surroundings.foreign import attributes_of, functions_in, hooks_of, is_foreign, unknown
from torchreel.tape.guards.surroundings.guarded_values import MAPPINGS, GuardedValues, guarded_container, parts_of
from torchreel.tape.guards.surroundings.hidden import hidden_state, is_hidden, is_unreadable
from torchreel.tape.guards.surroundings.readable_code import names_of
from torchreel.tape.guards.surroundings.users_code import is_installed, is_of_torch, is_users, is_users_module
from torchreel.tape.plain import PLAIN, is_plain, joined

_MOST = 200_000  # objects that are looked at
_MOST_TEXTS = 100  # that may be names of attributes which are not there
# Of Python, but with what the user put into them.
_DATA = (types.SimpleNamespace, argparse.Namespace, threading.local)
_FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, functools.partial, type)
# With these, code can ask for an attribute that is not there.
_ASKING = {"getattr", "hasattr", "vars", "__dict__", "AttributeError"}
# What code may ask of torch, and go another way by it.
_SWITCHES = {"is_grad_enabled", "is_inference_mode_enabled", "is_autocast_enabled", "get_num_threads",
             "are_deterministic_algorithms_enabled", "get_default_device", "get_autocast_cpu_dtype"}  # fmt: skip
_MAKERS = ("__init__", "__new__", "__post_init__")
# Methods that torch calls by itself; so does Python those between underscores.
_ALWAYS = {"forward", "backward", "setup_context", "jvp", "vmap"}
# Of a module: what is looked at elsewhere, or is no setting.
_OWN = {*PARTS, *ABOUT_PARTS}


def roots_of(function: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(function, torch.nn.Module):
        yield "model", function
    elif isinstance(function, types.FunctionType | types.MethodType | functools.partial):
        yield "", function
    elif isinstance(function, types.BuiltinFunctionType | types.BuiltinMethodType):
        yield "self", function.__self__
    else:
        yield "self", function


def callables_in(given: Any, depth: int) -> Iterator[Any]:
    """Modules and functions among the arguments: they read more than they hold."""
    if isinstance(given, (torch.nn.Module, torch.optim.Optimizer, *_FUNCTIONS)):
        yield given
    elif isinstance(given, torch.Tensor):
        yield from hooks_of(given)
    elif depth < 6 and not isinstance(given, PLAIN):
        if is_users(type(given)):
            yield type(given)  # with its methods
        parts = list(given.values()) if isinstance(given, MAPPINGS) else []
        parts += given if isinstance(given, list | tuple | deque | set | frozenset) else ()
        parts += getattr(given, "__dict__", {}).values() if not isinstance(given, types.ModuleType) else ()
        for part in [*parts, *(_attribute(given, key) for key in _slots(given))]:
            yield from callables_in(part, depth + 1)


class Reached:
    """From the function to all that its code can name."""

    def __init__(self) -> None:
        self._met: dict[int, Any] = {}
        self._queue: list[tuple[str, Any]] = []
        self.names: set[str] = set(_ALWAYS)
        self._scopes: dict[int, tuple[dict[str, Any], set[str]]] = {}
        self._cells: dict[int, tuple[str, types.CellType]] = {}
        self._objects: list[tuple[str, Any]] = []
        self._containers: list[tuple[str, Any]] = []
        self._classes: list[type] = []
        self._functions: set[int] = set()
        self._hidden: list[tuple[str, Any]] = []
        self._spaces: list[tuple[str, dict[str, Any]]] = []
        self._class_keys: dict[type, set[str]] = {}
        self._texts: set[str] = set()
        self._slotted: list[tuple[str, Any]] = []
        self._asks_system = False
        self._constructed: set[type] = set()
        self._foreign: list[tuple[str, Any]] = []
        self._tensors: list[tuple[str, torch.Tensor]] = []
        self._made: set[str] = set()  # parts of names of attributes, see CodeNames
        self._values: set[str] = set()  # texts that were met as values
        self.refusal = ""  # why nobody can tell whether all is as it was

    def begin(self, roots: Iterable[tuple[str, Any]]) -> None:
        self._queue += roots
        known = -1
        while self._queue or known < len(self.names):
            known = len(self.names)
            while self._queue:
                with contextlib.suppress(Exception):  # an object of somebody's that does not let itself be looked at
                    self._visit(*self._queue.pop())
            # More code may have been met, which names more methods and attributes.
            for cls in self._classes:
                self._visit_methods(cls)
            for name, value in [*self._objects, *self._foreign]:
                self._visit_attributes(name, value)
            if len(self._met) > _MOST:
                self.refusal = (
                    f"The function can reach more than {_MOST:,} objects of Python, too many to look at before each "
                    "replay: give it what it needs of them as arguments."
                )
                return

    def _visit(self, name: str, value: Any) -> None:
        if isinstance(value, str):
            self._values.add(value)
        if isinstance(value, PLAIN) or id(value) in self._met:
            return
        self._met[id(value)] = value
        self.refusal = self.refusal or unknown(name, value, is_unreadable(value))
        if isinstance(value, torch.Tensor):
            self._visit_tensor(name, value)
        elif is_hidden(value):
            self._hidden.append((name, value))
            self._queue += ((name, part) for part in (value if isinstance(value, set) else ()))
        elif value is os.environ:
            self._asks_system = True
        elif isinstance(value, (*MAPPINGS, list, tuple, deque, frozenset)):
            self._visit_container(name, value)
        elif isinstance(value, types.FunctionType):
            self._visit_code(value)
        elif isinstance(value, types.ModuleType):
            self._visit_python_module(name, value)
        elif isinstance(value, type):
            self._constructed.add(value)
            self._visit_class(value)
        elif not self._visit_callable(name, value):
            self._visit_object(name, value)
        if is_users(type(value)) and not isinstance(value, type) and _slots(value):
            self._slotted.append((name, value))
            self._visit_class(type(value))
            self._queue += ((joined(name, key), _attribute(value, key)) for key in _slots(value))

    def _visit_tensor(self, name: str, tensor: torch.Tensor) -> None:
        self._tensors.append((name, tensor))
        self._queue += ((f"a hook of {name}", hook) for hook in hooks_of(tensor))
        self._visit_class(type(tensor))

    def _visit_callable(self, name: str, value: Any) -> bool:
        """What calls something else: whether it is that."""
        if isinstance(value, types.MethodType):
            self._queue += [(name or "self", value.__self__), (name, value.__func__)]
        elif isinstance(value, types.BuiltinFunctionType | types.MethodWrapperType):
            if not isinstance(value.__self__, types.ModuleType | type):
                self._queue.append((name, value.__self__))
        elif isinstance(value, functools.partial):
            self._queue += [(name, value.func), (name, value.args), (name, value.keywords)]
        elif isinstance(value, CachedFunction):
            self._queue.append((name, value.__wrapped__))
        elif isinstance(value, weakref.ref):
            self._queue.append((name, value()))
        else:
            return False
        return True

    def _visit_object(self, name: str, value: Any) -> None:
        if isinstance(value, torch.optim.Optimizer):
            self._queue += ((name, each) for group in value.param_groups for each in group["params"])
        elif not _is_object(value):
            if is_foreign(value):
                self._foreign.append((name, value))
            return
        self._objects.append((name, value))
        self._visit_class(type(value))
        if isinstance(value, torch.nn.Module):
            own = [*parameters_of(value).items(), *buffers_of(value).items()]
            self._queue += ((joined(name, key), each) for key, each in own if each is not None)
        if isinstance(value, torch.nn.Module | torch.optim.Optimizer):
            self._queue += ((f"a hook of {name}", hook) for hook in hooks_of(value))

    def _visit_attributes(self, name: str, value: Any) -> None:
        parts = [(key, vars(value)[key]) for key in self._read_keys(value)]
        if isinstance(value, torch.nn.Module):
            parts += modules_of(value).items()
        for key, part in parts:
            if isinstance(part, str):
                self._values.add(part)
            elif id(part) not in self._met and not isinstance(part, PLAIN):
                self._queue.append((joined(name, key), part))

    def _read_keys(self, value: Any) -> list[str]:
        """The attributes of an object that code can read."""
        space = vars(value)
        if isinstance(value, _DATA):
            return list(space)
        if isinstance(value, torch.nn.Module) and not is_users(type(value)):  # torch's own: all settings
            return [k for k, part in space.items() if (is_plain(part) or _is_function(part)) and k not in _OWN]
        if isinstance(value, torch.optim.Optimizer):
            names = self.names | {"state", "param_groups"} if "state_dict" in self.names else self.names
            return [key for key in space if key in names]
        if not _is_object(value):
            return attributes_of(value, self.names)
        return [key for key in space if (key in self.names or self._is_made(key)) and key not in _OWN]

    def _is_made(self, key: str) -> bool:
        """Whether it can be a name that code puts together, or has from elsewhere, and gives to getattr."""
        return any(part in key if part else key in self._values for part in self._made)

    def _visit_python_module(self, name: str, module: types.ModuleType) -> None:
        if module is os:
            self._asks_system = True
        elif module is random:
            self._hidden.append((name, global_random()))
        elif module is numpy or module is numpy.random:
            self._hidden.append((f"{name}.random" if module is numpy else name, numpy.random.mtrand._rand))
        elif is_users_module(module.__name__) and not is_installed(getattr(module, "__file__", None) or ""):
            self._objects.append((name, module))

    def _visit_class(self, cls: type) -> None:
        for each in cls.__mro__:
            if is_users(each) and (each is cls or id(each) not in self._met) and each not in self._classes:
                self._met[id(each)] = each
                self._classes.append(each)

    def _visit_methods(self, cls: type) -> None:
        for key, value in vars(cls).items():
            called = key in self.names or isinstance(value, property) or self._is_called_by_python(cls, key)
            if not called:
                continue
            functions = list(functions_in(value))
            for function in functions:
                self._visit_code(function)
            if not functions and not is_plain(value) and id(value) not in self._met and self._is_own(cls, key):
                self._queue.append((f"{cls.__qualname__}.{key}", value))

    def _is_own(self, cls: type, key: str) -> bool:
        return self._is_read(key) and not is_installed(_file_of(cls))

    def _is_called_by_python(self, cls: type, key: str) -> bool:
        """An object that is there has been made; one of a class that the code names may be made."""
        if key in _MAKERS:
            return cls in self._constructed
        return key.startswith("__") and key.endswith("__") and key not in ("__repr__", "__str__", "__del__")

    def _visit_container(self, name: str, value: Any) -> None:
        if not isinstance(value, tuple | frozenset):
            self._containers.append((name, value))
        for key, part in parts_of(value):
            if not is_plain(part) or isinstance(part, str):
                self._queue.append((joined(name, key), part))
            if not is_plain(key):
                self._queue.append((f"a key of {name}", key))

    def _visit_code(self, function: types.FunctionType) -> None:
        if id(function) in self._functions:
            return
        self._functions.add(id(function))
        file = function.__code__.co_filename
        if is_users(function) and not is_of_torch(file):
            names = names_of(function.__code__)
            self.names |= names.others
            if not is_installed(file):  # what a library has in its own variables is its own affair
                self._texts |= names.texts
                self._made |= names.made
                self._visit_globals(function, names.globals, names.texts)
        elif not is_users(function) and not is_of_torch(file):  # Python's own
            return
        # What is put around a function of the user's has that in a closure.
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self._cells[id(cell)] = (name, cell)
            self._queue.append((name, _content(cell)))
        defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        self._queue += ((f"{function.__name__}.default", value) for value in defaults)
        if vars(function):
            self._spaces.append((function.__name__, vars(function)))
            self._queue += ((joined(function.__name__, key), value) for key, value in vars(function).items())

    def _visit_globals(self, function: types.FunctionType, names: frozenset[str], texts: frozenset[str]) -> None:
        scope, read = self._scopes.setdefault(id(function.__globals__), (function.__globals__, set()))
        found = {name for name in names if name in scope}
        if "globals" in names:
            found |= {text for text in texts if text in scope}
        # What is not there yet may come.
        read |= found | {name for name in names if name not in scope and not hasattr(builtins, name)}
        self._queue += ((name, scope[name]) for name in found)

    def modules(self) -> Iterator[tuple[str, torch.nn.Module]]:
        return ((name, value) for name, value in self._objects if isinstance(value, torch.nn.Module))

    def guarded(self) -> Iterator[GuardedValues]:
        for scope, read in self._scopes.values():
            names = [name for name in sorted(read) if not isinstance(scope.get(name), types.ModuleType)]
            yield GuardedValues("", scope.get, names, write=scope.__setitem__)
        for name, cell in self._cells.values():
            yield GuardedValues("", _content, [cell], name=name, write=_fill)
        for name, value in self._objects:
            yield from self._guarded_object(name, value)
        for name, value in self._foreign:
            yield GuardedValues(name, vars(value).get, self._read_keys(value), write=vars(value).__setitem__)
        for name, value in self._containers:
            yield from guarded_container(name, value)
        for name, value in self._slotted:
            yield GuardedValues(name, functools.partial(_attribute, value), _slots(value))
        if self._asks_system:
            yield GuardedValues("os.environ", os.environ.get, sorted(self._texts))
        for switch in _SWITCHES & self.names:
            yield GuardedValues("", _switch, [switch], name=f"what torch.{switch}() gives")
        for name, space in self._spaces:
            yield GuardedValues(name, space.get, list(space))
        yield from self._guarded_tensors()
        for name, value in self._hidden:
            yield GuardedValues("", hidden_state, [value], name=f"what is in {name}", is_hidden=True)
        for cls in self._classes:
            yield GuardedValues(cls.__qualname__, cls.__dict__.get, [key for key in vars(cls) if self._is_read(key)])

    def _guarded_tensors(self) -> Iterator[GuardedValues]:
        """The attributes that tensors were given in Python, or may be given."""
        asks = not _ASKING.isdisjoint(self.names)
        for name, tensor in self._tensors:
            if asks or tensor.__dict__:
                yield GuardedValues(name, tensor.__dict__.get, list(tensor.__dict__))
                yield GuardedValues("", tuple, [tensor.__dict__], is_form=True, name=f"what {name} has for attributes")

    def _keys_of(self, cls: type) -> set[str]:
        """What an object may have from its classes."""
        if cls not in self._class_keys:
            keys = {key for each in cls.__mro__ if is_users(each) for key in vars(each) if not key.startswith("__")}
            self._class_keys[cls] = keys | {"forward"}
        return self._class_keys[cls]

    def _is_read(self, key: str) -> bool:
        return key in self.names and not (key.startswith("__") and key != "__call__")

    def _guarded_object(self, name: str, value: Any) -> Iterator[GuardedValues]:
        space, keys = vars(value), self._read_keys(value)
        # What the class has and the object has not, the object may be given later.
        maybe = self._keys_of(type(value)) & self.names
        if is_users(type(value)) and len(self._texts) <= _MOST_TEXTS:
            maybe |= self._texts
        absent = [key for key in maybe if key not in space]
        yield GuardedValues(name, space.get, [*keys, *absent], write=space.__setitem__)


def _fill(cell: types.CellType, value: Any) -> None:
    cell.cell_contents = value


def _switch(name: str) -> Any:
    return getattr(torch, name)()


def _slots(value: Any) -> list[str]:
    found: list[str] = []
    for cls in type(value).__mro__:
        slots = vars(cls).get("__slots__", ())
        found += (slots,) if isinstance(slots, str) else slots
    return [name for name in found if not name.startswith("__")]


def _attribute(value: Any, name: str) -> Any:
    return getattr(value, name, None)


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


def _is_object(value: Any) -> bool:
    return isinstance(value, (torch.nn.Module, *_DATA)) or (hasattr(value, "__dict__") and is_users(type(value)))


def _is_function(value: Any) -> bool:
    return isinstance(value, _FUNCTIONS) or (callable(value) and is_users(type(value)))


def _file_of(cls: type) -> str:
    return getattr(sys.modules.get(cls.__module__), "__file__", None) or ""
