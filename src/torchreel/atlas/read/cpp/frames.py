"""Declarations of C++ code, and the parts of it that they are in. Places are offsets of `code`."""

from __future__ import annotations

from typing import NamedTuple

from tree_sitter import Node


class Declared(NamedTuple):
    """A name that the code declares."""

    name: str
    scope: str
    kind: str
    word: int
    """The index of the first word of its name."""
    start: int
    """Offset of the code: where the declaration begins, ..."""
    head: int
    """... where its body or its semicolon does, ..."""
    end: int
    """... and where it ends."""
    declaration: bool = False
    visible: str = ""
    """The scope in which it needs no qualifier."""
    function: Node | None = None
    """Its declarator, if it is a function."""


class Frame:
    """A part of the code that is a scope, or has names of its own."""

    __slots__ = (
        "class_name",
        "context",
        "end",
        "friend",
        "locals",
        "namespace",
        "scope",
        "start",
        "template",
        "visible",
    )

    def __init__(self, outer: Frame | None, start: int, end: int, context: str, scope: str) -> None:
        self.start = start
        self.end = end
        self.context = context
        """What it is to a declaration in it: namespace, class, enum or function."""
        self.scope = scope
        self.visible = scope
        """The scope in which names declared here need no qualifier."""
        self.namespace: str = scope if context == "namespace" or outer is None else outer.namespace
        """The scope of the innermost namespace."""
        self.class_name = ""
        """A function of this name is a constructor."""
        self.locals: set[str] | None = None
        """Parameters and variables that nobody outside can see; None if they belong to the frame around it."""
        self.template = -1
        """Where the templates begin, if what is declared here is one."""
        self.friend = False
