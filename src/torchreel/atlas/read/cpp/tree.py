"""The syntax tree of C++ code: the nodes of it that declare something, outer ones before inner ones."""

from __future__ import annotations

import threading
import time
from itertools import count

import tree_sitter
import tree_sitter_cpp

_LANGUAGE = tree_sitter.Language(tree_sitter_cpp.language())
_QUERY = tree_sitter.Query(
    _LANGUAGE,
    """
    (namespace_definition) @namespace
    (class_specifier) @class
    (struct_specifier) @struct
    (union_specifier) @union
    (enum_specifier) @enum
    (enumerator) @enumerator
    (function_definition) @function
    (declaration) @declaration
    (field_declaration) @declaration
    (type_definition) @typedef
    (alias_declaration) @alias
    (namespace_alias_definition) @alias
    (concept_definition) @concept
    (using_declaration) @using
    (template_declaration) @template
    (friend_declaration) @friend
    (parameter_declaration declarator: [
        (identifier) (pointer_declarator) (reference_declarator) (array_declarator) (function_declarator)] @local)
    (optional_parameter_declaration declarator: (_) @local)
    (variadic_parameter_declaration declarator: (_) @local)
    (type_parameter_declaration (type_identifier) @local)
    (variadic_type_parameter_declaration (type_identifier) @local)
    (optional_type_parameter_declaration name: (type_identifier) @local)
    (for_range_loop declarator: (_) @local)
    (lambda_capture_initializer left: (identifier) @local)
    """,
)
_CHUNK = 4096
_SECONDS, _SECONDS_PER_CHARACTER = 1.0, 4e-6
"""What the parser may take up to a place: some thirty times what it takes for C++. On other texts its time may grow
with the square of their length or worse; then it is told that the text ends."""


Found = tuple[int, int, int, str, tree_sitter.Node]
"""Where a node begins, the negative of where it ends (so outer ones come first), a number, its name in the query, and
the node."""


class _Parser(threading.local):
    """A parser keeps its memory, so it is faster the second time; it is for one text at a time."""

    def __init__(self) -> None:
        self.parser = tree_sitter.Parser(_LANGUAGE)


_PARSER = _Parser()


def parse(code: str) -> tuple[list[Found], int]:
    """The nodes that declare something, and how much of the code (ASCII) the parser has seen."""
    data = code.encode("ascii")
    begin = time.thread_time()
    seen = len(data)

    def read(offset: int, _: object) -> bytes:
        nonlocal seen
        if time.thread_time() - begin > _SECONDS + _SECONDS_PER_CHARACTER * offset:
            seen = min(seen, offset)
        return data[offset : min(offset + _CHUNK, seen)]

    tree = _PARSER.parser.parse(read)
    captures = tree_sitter.QueryCursor(_QUERY).captures(tree.root_node)
    number = count()
    if tree.root_node.has_error:
        captures["error"] = _errors(tree.root_node)
    found = [
        (node.start_byte, -node.end_byte, next(number), what, node)
        for what, nodes in captures.items()
        for node in nodes
    ]
    found.sort()
    return found, seen


def _errors(root: tree_sitter.Node) -> list[tree_sitter.Node]:
    """What was not understood, the outermost nodes. A query would take long for errors within errors."""
    errors = []
    nodes = [root]
    while nodes:
        node = nodes.pop()
        if node.is_error:
            errors.append(node)
        elif node.has_error:
            nodes.extend(node.children)
    return errors
