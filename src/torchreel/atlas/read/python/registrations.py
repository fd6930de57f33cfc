"""Operators and kernels that a Python file registers with torch.library, as far as it names them in so many words."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from torchreel.atlas.model import Registration
from torchreel.atlas.read.python.found import Found
from torchreel.atlas.read.python.nodes import argument, dotted, last_name, literal
from torchreel.atlas.read.python.scopes import Resolver, Scope

# Functions of torch.library whose first argument is an operator, with the index and the name of the dispatch key.
_FUNCTIONS = {
    "custom_op": (-1, "device_types"),
    "triton_op": (-1, ""),
    "impl_abstract": (-1, ""),
    "register_kernel": (1, "device_types"),
    "register_fake": (-1, ""),
    "register_autograd": (-1, ""),
    "register_vmap": (-1, ""),
    "register_autocast": (1, "device_type"),
    "register_torch_dispatch": (-1, ""),
}
_MODULES = ("torch.library.", "torch._library.", "torch._custom_op")
_OPERATORS = ("torch.ops.", "torch._ops.ops.")
_MAKES_AN_OPERATOR = ("custom_op", "triton_op")
_MAKES_A_LIBRARY = ("Library", "_scoped_library")
REGISTERING = frozenset({*_FUNCTIONS, *_MAKES_A_LIBRARY, "define", "impl", "register_decomposition"})
"""The names of functions and methods that register something."""

_SCHEMA = re.compile(r"\s*((?:\w+::)?\w+(?:\.\w+)?)\s*\(.*\)\s*->", re.DOTALL)
_KEY = re.compile(r"[A-Z]\w*")


class Registrations:
    """Reads the calls of one file."""

    def __init__(self, found: Found, resolver: Resolver) -> None:
        self._found, self._resolver = found, resolver
        self._libraries: dict[tuple[Scope | None, str], tuple[str, str]] = {}
        """Namespace and dispatch key of variables that are a Library, empty where they are not written out, ..."""
        self._namespaces: dict[tuple[Scope | None, str], str] = {}
        """... and what `aten` is after `aten = torch.ops.aten`. A variable is the scope that binds it, and its name."""
        self._operators: dict[int, str] = {}
        """Functions that custom_op has made operators."""
        for scope, name, value in found.aliases:
            self._remember(scope, name, value)

    def _remember(self, scope: Scope, name: str, value: ast.expr) -> None:
        variable = self._variable(scope, name)
        if isinstance(value, ast.Call):
            now = (literal(argument(value, 0, "ns")) or "", literal(argument(value, 2, "dispatch_key")) or "")
            was = self._libraries.setdefault(variable, now)
            if was != now:
                self._libraries[variable] = ("", "")
        else:
            self._namespaces[variable] = last_name(value)

    def _variable(self, scope: Scope, name: str) -> tuple[Scope | None, str]:
        return scope.owner(name), name

    def of(self, scope: Scope, node: ast.expr, path: str) -> Iterator[Registration]:
        """What a call, or a decorator that is none, registers. `path` is what imports say of the function."""
        function = node.func if isinstance(node, ast.Call) else node
        name = path.rpartition(".")[2] if path else last_name(function)
        if path.startswith(_MODULES):
            yield from self._by_function(scope, node, name)
        elif name == "register_decomposition" and isinstance(node, ast.Call) and node.args:
            listed = node.args[0]
            for one in listed.elts if isinstance(listed, ast.List | ast.Tuple) else [listed]:
                operator = self._operator(scope, one)
                if operator:
                    yield Registration(node.lineno, name, operator)
        elif isinstance(function, ast.Attribute):
            if name in ("define", "impl") and isinstance(node, ast.Call):
                yield from self._by_library(scope, node, function)
            else:
                yield from self._by_operator(scope, node, function)

    def _by_function(self, scope: Scope, node: ast.expr, name: str) -> Iterator[Registration]:
        if not isinstance(node, ast.Call):
            return
        what = f"torch.library.{name}"
        if name in _MAKES_A_LIBRARY:
            namespace = literal(argument(node, 0, "ns"))
            if namespace:
                yield Registration(node.lineno, what, namespace, literal(argument(node, 2, "dispatch_key")) or "")
        elif name in _FUNCTIONS:
            operator = self._operator(scope, argument(node, 0, "name" if name == "custom_op" else "op"))
            if operator:
                operator = self._within(scope, argument(node, -1, "lib"), operator)
                if name in _MAKES_AN_OPERATOR and node in self._found.decorated:
                    self._operators[self._found.decorated[node]] = operator
                yield Registration(node.lineno, what, operator, _keys(argument(node, *_FUNCTIONS[name])))
        elif name in ("define", "impl"):
            yield from self._define_or_impl(scope, node, name)

    def _define_or_impl(self, scope: Scope, node: ast.Call, name: str) -> Iterator[Registration]:
        """These take an operator first, or a library and then an operator, or its schema."""
        library, index = argument(node, -1, "lib"), 0
        if literal(argument(node, 0, "qualname")) is None:
            library, index = argument(node, 0, "lib"), 1
        operator = literal(argument(node, index, "name" if index else "qualname"))
        if operator is None:
            return
        schema = _SCHEMA.match(operator)
        operator = self._within(scope, library, schema[1] if schema else operator)
        key = "" if name == "define" else _keys(argument(node, index + 1, "dispatch_key" if index else "types"))
        yield Registration(node.lineno, f"torch.library.{name}", operator, key or self._key(scope, library, name))

    def _by_library(self, scope: Scope, node: ast.Call, function: ast.Attribute) -> Iterator[Registration]:
        """`lib.define(...)` and `lib.impl(...)`; of an unknown object only with a schema, or with a dispatch key."""
        known = isinstance(function.value, ast.Name) and self._variable(scope, function.value.id) in self._libraries
        first = argument(node, 0, "schema" if function.attr == "define" else "op_name")
        what = f"Library.{function.attr}"
        if function.attr == "define":
            schema = _SCHEMA.match(literal(first) or "")
            if schema:
                yield Registration(node.lineno, what, self._within(scope, function.value, schema[1]))
            return
        operator = self._operator(scope, first)
        key = literal(argument(node, 2, "dispatch_key")) or ""
        if operator and (known or _KEY.fullmatch(key)):
            operator = self._within(scope, function.value, operator)
            yield Registration(node.lineno, what, operator, key or self._key(scope, function.value, "impl"))

    def _by_operator(self, scope: Scope, node: ast.expr, function: ast.Attribute) -> Iterator[Registration]:
        """`@op.register_fake` and such, where `op` is a function that custom_op has made an operator."""
        binding = self._resolver.binding(scope, dotted(function.value) or ("",))
        operator = self._operators.get(binding) if isinstance(binding, int) else None
        if operator and function.attr in _FUNCTIONS:
            key = _keys(argument(node, 0, "device_types")) if isinstance(node, ast.Call) else ""
            key = key if _FUNCTIONS[function.attr][1] else ""
            yield Registration(node.lineno, f"CustomOpDef.{function.attr}", operator, key)

    def _operator(self, scope: Scope, node: Any) -> str:
        """The operator that an argument names: `"aten::add"`, `torch.ops.aten.add.Tensor`, `aten.add`."""
        text = literal(node)
        if text is not None:
            return text
        parts = dotted(node)
        if len(parts) < 2:
            return ""
        path = self._resolver.binding(scope, parts)
        if isinstance(path, str):
            prefix = next((prefix for prefix in _OPERATORS if path.startswith(prefix)), None)
            parts = tuple(path.removeprefix(prefix).split(".")) if prefix else ()
        else:
            namespace = self._namespaces.get(self._variable(scope, parts[0]))
            parts = (namespace, *parts[1:]) if namespace else ()
        if len(parts) not in (2, 3):
            return ""
        overload = parts[2] if len(parts) == 3 and parts[2] != "default" else ""
        return f"{parts[0]}::{parts[1]}" + (f".{overload}" if overload else "")

    def _within(self, scope: Scope, library: Any, operator: str) -> str:
        """An operator with the namespace of its library, if it has none and that is known."""
        namespace = self._library(scope, library)[0]
        return f"{namespace}::{operator}" if namespace and "::" not in operator else operator

    def _key(self, scope: Scope, library: Any, name: str) -> str:
        return self._library(scope, library)[1] if name == "impl" else ""

    def _library(self, scope: Scope, node: Any) -> tuple[str, str]:
        if not isinstance(node, ast.Name):
            return "", ""
        return self._libraries.get(self._variable(scope, node.id), ("", ""))


def _keys(node: Any) -> str:
    """Dispatch keys, or types of devices, that are written out."""
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return ", ".join(filter(None, map(literal, node.elts)))
    return literal(node) or ""
