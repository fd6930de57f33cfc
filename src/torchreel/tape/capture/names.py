"""Names for the tensors that a function closed over: those of the variables, modules and optimizers that hold them.

The search begins at what the function can reach (its closure, the globals that it names, its defaults, its object; in
a `with` block the variables around it) and follows functions, modules, optimizers and plain objects from there.
"""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from torchreel._torch.modules import buffers_of, parameters_of
from torchreel.program.model import Role

_DEEPEST = 6
_WIDEST = 1000  # parts of a container
_MOST = 20_000  # objects


@dataclass(frozen=True)
class NamedTensor:
    name: str
    role: Role
    tensor: torch.Tensor


def reachable(function: Any) -> dict[str, Any]:
    """The variables that a function can see, by name."""
    if isinstance(function, torch.nn.Module):
        return {"model": function}
    if isinstance(function, functools.partial):
        given = {f"argument {index}": value for index, value in enumerate(function.args)}
        return {**reachable(function.func), **given, **function.keywords}
    found: dict[str, Any] = {}
    owner = getattr(function, "__self__", None)
    if owner is not None and not isinstance(owner, types.ModuleType):
        found["self"] = owner
    code = getattr(function, "__code__", None)
    if code is None:
        return found if isinstance(function, type | types.BuiltinFunctionType) else found | {"self": function}
    function = getattr(function, "__func__", function)
    scope = function.__globals__
    found |= {name: scope[name] for name in _names_in(code) if name in scope}
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    defaults = function.__defaults__ or ()
    arguments = code.co_varnames[: code.co_argcount]
    found |= dict(zip(arguments[len(arguments) - len(defaults) :], defaults, strict=True))
    return found | (function.__kwdefaults__ or {})


def visible(frame: types.FrameType) -> Callable[[], dict[str, Any]]:
    """The variables that the code of a frame can see, as far as they are still there when they are asked for.

    The tape must not keep them: among them may be all that the block computed.
    """
    scope, local = frame.f_globals, frame.f_locals
    seen = {name: scope[name] for name in _names_in(frame.f_code) if name in scope} | local
    held = {name: _held(value) for name, value in seen.items() if not _is_simple(value)}
    return lambda: {name: value for name, get in held.items() if (value := get()) is not None}


def _held(value: Any) -> Callable[[], Any]:
    """Something that gives the value, if others keep it; of a container a copy, with those of its parts."""
    if type(value) in (list, tuple):
        parts = [_held(part) for part in value[:_WIDEST]]
        return lambda: [part() for part in parts]
    if type(value) is dict:
        named = {key: _held(part) for key, part in list(value.items())[:_WIDEST]}
        return lambda: {key: part() for key, part in named.items()}
    try:
        return weakref.ref(value)
    except TypeError:
        return lambda: None


def _names_in(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_in(constant)


class Search:
    """Everything that has a name, in the order of how short a way leads to it."""

    def __init__(self, roots: dict[str, Any], modules: list[Any], optimizers: list[Any]) -> None:
        self.modules: dict[int, str] = {}  # by id
        self._tensors: list[NamedTensor] = []
        self._met: set[int] = set()
        self._optimizers: list[tuple[str, torch.optim.Optimizer]] = []
        self._parameters: dict[int, str] = {}
        level = list(roots.items())
        for _ in range(_DEEPEST):
            level = [found for name, value in level for found in self._parts_of(name, value)]
        for module in modules:  # those that were called, and that no variable leads to
            self._visit_module(type(module).__name__, module)
        for optimizer in optimizers:
            self._visit(type(optimizer).__name__, optimizer)
        for name, optimizer in self._optimizers:
            self._visit_optimizer(name, optimizer)

    def tensors(self) -> list[NamedTensor]:
        return self._tensors

    def _parts_of(self, name: str, value: Any) -> list[tuple[str, Any]]:
        try:
            return self._visit(name, value)
        except Exception:  # an object of somebody's that does not let itself be looked at has no names to give
            return []

    def _visit(self, name: str, value: Any) -> list[tuple[str, Any]]:
        if id(value) in self._met or len(self._met) > _MOST or _is_simple(value):
            return []
        self._met.add(id(value))
        if isinstance(value, torch.nn.Module):
            self._visit_module(name, value)
        elif isinstance(value, torch.optim.Optimizer):
            self._optimizers.append((name, value))
        elif isinstance(value, torch.Tensor):
            self._add(name, "parameter" if isinstance(value, torch.nn.Parameter) else "captured", value)
        elif isinstance(value, dict):
            return [(f"{name}.{key}", part) for key, part in value.items() if isinstance(key, str | int)]
        elif isinstance(value, list | tuple):
            return [(f"{name}.{index}", part) for index, part in enumerate(value)]
        elif isinstance(value, types.FunctionType | types.MethodType | functools.partial):
            return list(reachable(value).items()) if _is_users(value) else []
        elif hasattr(value, "__dict__") and _is_users(type(value)):
            return [(f"{name}.{key}", part) for key, part in vars(value).items()]
        return []

    def _visit_module(self, root: str, module: torch.nn.Module) -> None:
        if id(module) in self.modules:
            return
        for path, part in module.named_modules():
            name = f"{root}.{path}" if path else root
            self._met.add(id(part))
            self.modules.setdefault(id(part), name)
            for own, parameter in parameters_of(part).items():
                if parameter is not None:
                    self._parameters.setdefault(id(parameter), f"{name}.{own}")
                    self._add(f"{name}.{own}", "parameter", parameter)
            for own, buffer in buffers_of(part).items():
                if buffer is not None:
                    self._add(f"{name}.{own}", "buffer", buffer)

    def _visit_optimizer(self, root: str, optimizer: torch.optim.Optimizer) -> None:
        for group_place, group in enumerate(optimizer.param_groups):
            for index, parameter in enumerate(group["params"]):
                path = self._parameters.get(id(parameter), f"{group_place}.{index}")
                if id(parameter) not in self._parameters:
                    self._add(f"{root}.parameter.{path}", "parameter", parameter)
                for key, value in optimizer.state.get(parameter, {}).items():
                    if isinstance(value, torch.Tensor):
                        self._add(f"{root}.{path}.{key}", "optimizer", value)
            for key, value in group.items():
                if isinstance(value, torch.Tensor):
                    self._add(f"{root}.group.{group_place}.{key}", "optimizer", value)

    def _add(self, name: str, role: Role, tensor: torch.Tensor) -> None:
        self._tensors.append(NamedTensor(name, role, tensor))
        if tensor.is_leaf and tensor.grad is not None:
            self._tensors.append(NamedTensor(f"{name}.grad", "gradient", tensor.grad))


def _is_simple(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | complex | str | bytes | types.ModuleType | type)


def _is_users(thing: Any) -> bool:
    """Whether it is of the user's program or of a library that uses torch, not of torch or Python itself."""
    module = getattr(thing, "__module__", None) or ""
    return module.split(".")[0] not in ("torch", "builtins", "functools", "typing", "collections", "threading", "numpy")
