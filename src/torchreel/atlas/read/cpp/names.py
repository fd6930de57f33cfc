"""The names in declarators of C++: which one is declared, in which scope, and whether as a function."""

from __future__ import annotations

import re
from typing import NamedTuple

from tree_sitter import Node

from torchreel.atlas.read.cpp.code import Code
from torchreel.atlas.read.cpp.words import Words

_NAMES_TEXT = """
    identifier field_identifier type_identifier namespace_identifier operator_name destructor_name
    qualified_identifier template_function template_method template_type operator_cast
"""
_NAMES = frozenset(_NAMES_TEXT.split())
_POINTERS = frozenset(("pointer_declarator", "reference_declarator"))
_LONGEST_SCOPE = 2000
_BLANK_IN_OPERATOR = re.compile(r"(?<=operator) (?=\W)|(?<=\") (?=\w)")


class Name(NamedTuple):
    """A name, as a declaration gives it."""

    name: str
    scope: str
    word: int
    """The index of its first word."""


class Declarator(NamedTuple):
    """What a declarator declares."""

    named: Node
    function: Node | None
    """The part with the parameters, if it is a function."""


def joined(scope: str, name: str) -> str:
    """A scope and what is in it. One that is longer than any compiler allows leaves out the name."""
    whole = f"{scope}::{name}" if scope and name else scope or name
    return whole if len(whole) <= _LONGEST_SCOPE else scope


def declarator(node: Node | None) -> Declarator | None:
    """What this declares, without the pointers, brackets and parameters around its name."""
    function = None
    while node is not None:
        kind = node.type
        if kind in _NAMES:
            return None if node.is_missing else Declarator(node, node if kind == "operator_cast" else function)
        inner = node.child_by_field_name("declarator")
        if kind == "function_declarator":
            function = node
        elif inner is None:
            inner = node.named_children[-1] if node.named_child_count else None
            if kind == "parenthesized_declarator" and inner is not None and inner.type in _POINTERS:
                function = None
        node = inner
    return None


class Names:
    """The names of a code."""

    def __init__(self, words: Words, code: Code) -> None:
        self._words = words.words
        self._code = code

    def of(self, node: Node, scope: str) -> Name:
        """The plain name of a node: a specialization has that of its template."""
        while node.type == "qualified_identifier":
            outer, inner = node.child_by_field_name("scope"), node.child_by_field_name("name")
            if outer is not None:
                scope = joined(scope, self._words[self._code.word_at(outer.start_byte)])
            if inner is None:
                break
            node = inner
        word = self._code.word_at(node.start_byte)
        kind = node.type
        if kind == "destructor_name":
            return Name(f"~{self._words[word + 1]}", scope, word + 1)
        if kind in ("operator_name", "operator_cast"):
            return Name(self._operator(node), scope, word)
        return Name(self._words[word], scope, word)

    def _operator(self, node: Node) -> str:
        end = node.end_byte
        inner = node.child_by_field_name("declarator") if node.type == "operator_cast" else None
        while inner is not None:
            end = inner.start_byte
            if inner.type == "abstract_function_declarator":
                break
            children = inner.named_children
            inner = inner.child_by_field_name("declarator") or (children[-1] if children else None)
        return _BLANK_IN_OPERATOR.sub("", self._code.text[node.start_byte : end].strip())
