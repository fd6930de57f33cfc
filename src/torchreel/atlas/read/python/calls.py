"""Calls of a Python file that register operators, or that may execute what they are given."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchreel.atlas.model import Look, Registration
from torchreel.atlas.read.python.found import Found
from torchreel.atlas.read.python.looks import LOOKS
from torchreel.atlas.read.python.nodes import dotted, last_name
from torchreel.atlas.read.python.registrations import REGISTERING, Registrations
from torchreel.atlas.read.python.scopes import Resolver, Scope

WATCHED = REGISTERING | {path.rpartition(".")[2] for path in LOOKS}
"""The last names of all functions that matter here; imports may give them others."""


def calls_of(found: Found, resolver: Resolver) -> tuple[list[Registration], list[Look]]:
    """What the calls of a file register, and those that are worth a look; both by line."""
    registrations: list[Registration] = []
    looks: list[Look] = []
    reader = Registrations(found, resolver)
    for scope, node in sorted(_watched(found), key=lambda call: (call[1].lineno, call[1].col_offset)):
        path = _path(resolver, scope, node.func if isinstance(node, ast.Call) else node)
        registrations += reader.of(scope, node, path)
        what, counts = LOOKS.get(path, ("", None))
        if counts is not None and isinstance(node, ast.Call) and counts(node):
            looks.append(Look(node.lineno, what))
    return registrations, looks


def _watched(found: Found) -> Iterator[tuple[Scope, ast.expr]]:
    renamed = {row.local for row in found.imports if row.local and row.target.rpartition(".")[2] in WATCHED}
    for scope, node in found.calls:
        name = last_name(node)
        if name in WATCHED or name in renamed:
            yield scope, node


def _path(resolver: Resolver, scope: Scope, function: ast.expr) -> str:
    """What imports say that a function is; a name that the file does not bind is a builtin."""
    parts = dotted(function)
    if not parts:
        return ""
    binding = resolver.binding(scope, parts)
    if binding is None and len(parts) == 1:
        return parts[0]
    return binding if isinstance(binding, str) else ""
