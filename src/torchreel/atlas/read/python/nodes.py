"""Small questions about nodes of a Python syntax tree."""

from __future__ import annotations

import ast
from ast import Attribute, Call, Constant, Name
from typing import Any


def last_name(node: Any) -> str:
    """`c` of `a.b.c`, `a.b.c(...)` and `a.b.c[...]`."""
    if type(node) is Call:
        node = node.func
    elif type(node) is ast.Subscript:
        node = node.value
    return str(node.attr if type(node) is Attribute else node.id if type(node) is Name else "")


def dotted(node: Any) -> tuple[str, ...]:
    """The names of `a.b.c`; none for anything else."""
    parts = []
    while type(node) is Attribute:
        parts.append(node.attr)
        node = node.value
    return (node.id, *reversed(parts)) if type(node) is Name else ()


def argument(call: ast.Call, index: int, name: str) -> Any:
    """The node of an argument, by its index or its name; None if it is not given."""
    if 0 <= index < len(call.args):
        return call.args[index]
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)


def literal(node: Any) -> str | None:
    """The text of a string that is written out."""
    return node.value if type(node) is Constant and type(node.value) is str else None
