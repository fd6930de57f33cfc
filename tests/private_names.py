"""Finds uses of private torch and private CPython in source code, by its syntax tree."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

_MODULE = re.compile(r"torch(\.\w+)*\._[a-zA-Z]\w*(\.\w+)*")  # as a text: "torch._dynamo"
_ASK_BY_TEXT = {"getattr", "hasattr", "setattr", "delattr"}
# Public, but what they are is decided by the version of CPython.
_VERSION = {"co_code", "co_exceptiontable", "co_linetable", "co_positions"}
_PUBLIC = {("os", "_exit")}  # documented


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"


def private_uses(path: Path) -> Iterator[tuple[int, str]]:
    """Lines, and what is private there: "torch._C", "sys._getframe", or "._cdata" of an object that is not ours."""
    tree = ast.parse(path.read_text())
    roots = dict(_imported(tree))
    roots |= _renamed(tree, roots)
    own = set(_defined(tree))
    for node in ast.walk(tree):
        yield from ((node.lineno, text) for text in _in_imports(node))
        if isinstance(node, ast.Attribute):
            yield from ((node.lineno, text) for text in _in_attribute(node, roots, own))
        elif isinstance(node, ast.Call):
            yield from ((node.lineno, text) for text in _in_call(node, own))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _MODULE.fullmatch(node.value):
            yield node.lineno, node.value


def _is_watched(module: str) -> bool:
    first = module.partition(".")[0]
    return first == "torch" or first in sys.stdlib_module_names


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """What names of torch and of the standard library are called in a file, and what they are."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if _is_watched(alias.name):
                    yield (
                        alias.asname or alias.name.partition(".")[0],
                        (alias.name if alias.asname else alias.name.partition(".")[0]),
                    )
        elif isinstance(node, ast.ImportFrom) and node.module and _is_watched(node.module):
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _renamed(tree: ast.Module, roots: dict[str, str]) -> dict[str, str]:
    """`c10d = torch.distributed`: another name for the same."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name | ast.Attribute):
            path = _path(node.value, roots)
            for target in node.targets:
                if path is not None and isinstance(target, ast.Name):
                    found[target.id] = path
    return found


def _path(node: ast.expr, roots: dict[str, str]) -> str | None:
    """`nn.functional.relu` -> "torch.nn.functional.relu", if the first name is one of `roots`."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in roots:
        return None
    return ".".join([roots[node.id], *reversed(parts)])


def _defined(tree: ast.Module) -> Iterator[str]:
    """Private names that a file itself gives to something."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
                yield node.attr
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _in_imports(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module and node.module != "__future__":
        names = [f"{node.module}.{alias.name}" for alias in node.names]
    else:
        return
    yield from (name for name in names if _is_watched(name) and any(map(is_private, name.split("."))))


def _in_attribute(node: ast.Attribute, roots: dict[str, str], own: set[str]) -> Iterator[str]:
    if node.attr in _VERSION:
        yield f".{node.attr}"
    if not is_private(node.attr):
        return
    path = _path(node, roots)
    if path is not None:
        first, *rest = path.split(".")
        is_op = path.startswith("torch.ops.") and len(rest) == 3  # the name of an op, not of a part of torch
        if not is_op and (first, node.attr) not in _PUBLIC:
            yield path
    elif node.attr not in own and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
        yield f".{node.attr}"


def _in_call(node: ast.Call, own: set[str]) -> Iterator[str]:
    """getattr(tensor, "_base")"""
    if isinstance(node.func, ast.Name) and node.func.id in _ASK_BY_TEXT and len(node.args) > 1:
        name = node.args[1]
        text = name.value if isinstance(name, ast.Constant) else None
        if isinstance(text, str) and is_private(text) and text not in own:
            yield f".{text}"
