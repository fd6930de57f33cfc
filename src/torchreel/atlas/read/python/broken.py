"""Parts of Python files that `ast` refuses, read by tree-sitter: it reads on behind an error, and knows newer syntax.

The walk is that of `walk`, over the nodes of the other parser. Nothing is recursive here either.
"""

from __future__ import annotations

import ast
import re
from collections import deque
from collections.abc import Callable, Iterator

import tree_sitter
import tree_sitter_python
from tree_sitter import Node

from torchreel.atlas.model import Symbol
from torchreel.atlas.read.python import broken_definitions as definitions
from torchreel.atlas.read.python.calls import WATCHED
from torchreel.atlas.read.python.found import Found
from torchreel.atlas.read.python.repair import REFUSALS
from torchreel.atlas.read.python.scopes import GLOBAL, LOCAL, MOST_PARTS, NONLOCAL, ClassScope, Scope
from torchreel.atlas.read.python.text import PythonText

Stack = list[Node]

MOST_AT_ONCE = 32 << 10
"""Bytes. The time that tree-sitter takes grows with the square of a text that is one error behind the other."""

_LANGUAGE = tree_sitter.Language(tree_sitter_python.language())
_LONE_RETURN = re.compile(rb"\r(?!\n)")
_STATEMENT = re.compile(r"^(?!(?:else|elif|except|finally)\b)[A-Za-z_@\x80-\xff]", re.MULTILINE)
_DEFINITION = re.compile(r"^([ \t]*)(?:async[ \t]+)?(def|class)[ \t]+([A-Za-z_]\w*)[^\r\n]*", re.MULTILINE | re.ASCII)
_SPLATS = ("list_splat", "dictionary_splat")
_BLOCK = b"if 1:\n"


class BrokenWalk:
    """The walk over the parts of a file that were refused."""

    def __init__(self, source: PythonText, found: Found) -> None:
        """What is found comes to what has been `found`."""
        self.source = source
        self.found = found
        self.decorators: dict[int, list[str]] = {}
        """The last names of the decorators of a definition, by the id of its node."""
        self._waiting: deque[tuple[Scope, list[Node]]] = deque()
        self._unread: list[tuple[Scope, int, int]] = []

    def read_all(self) -> None:
        """Read the whole file, in parts of some statements each."""
        self.found.scopes.append(self.found.module)
        start = before = 0
        size = len(self.source.view)
        for begin in [*(statement.start() for statement in _STATEMENT.finditer(self.source.view)), size]:
            if begin - start > MOST_AT_ONCE and before > start:
                self.read(self.found.module, start, before)
                start = before
            before = begin
        self.read(self.found.module, start, size)

    def read(self, scope: Scope, start: int, end: int) -> None:
        """Read some statements that stand in a scope."""
        if end - start > MOST_AT_ONCE:
            self.found.errors.append(self.source.line_at(start))
            self._look_again(scope, start, end)
            return
        root = self._parsed(start, end)
        self.found.errors += {self.source.line_at(max(node.start_byte, start)) for node in _errors(root)}
        if scope is self.found.module:
            self._note_first_statement(root)
        self._waiting.append((scope, root.children))
        while self._waiting:
            self._walk(*self._waiting.popleft())
        for unread in self._unread:
            self._look_again(*unread)
        self._unread.clear()

    def _parsed(self, start: int, end: int) -> Node:
        """The tree of a part, with the offsets of the whole: blank lines stand for what is before."""
        begin = self.source.begins[self.source.line_at(start)]
        before = b"\n" * begin
        if start > begin >= len(_BLOCK):  # what is indented has to be in a block
            before = before[len(_BLOCK) :] + _BLOCK
        text = before + self.source.view[begin:end].encode("latin-1")
        # It knows lines by line feeds only.
        return tree_sitter.Parser(_LANGUAGE).parse(_LONE_RETURN.sub(b"\n", text)).root_node

    def _note_first_statement(self, root: Node) -> None:
        statement = next((node for node in root.named_children if node.type != "comment"), None)
        if statement is not None and statement.start_byte < self.found.first_statement:
            self.found.first_statement = statement.start_byte
            self.found.doc = definitions.docstring(self, statement)

    def _walk(self, scope: Scope, nodes: list[Node]) -> None:
        stack = nodes[::-1]
        while stack:
            node = stack.pop()
            handler = _HANDLERS.get(node.type)
            if handler is not None:
                handler(self, scope, node, stack)
            else:
                stack += node.named_children[::-1]

    def later(self, scope: Scope, nodes: list[Node]) -> None:
        """Let a scope wait for its turn."""
        self.found.scopes.append(scope)
        self._waiting.append((scope, nodes))

    def unread(self, scope: Scope, node: Node) -> None:
        """What is in an error may still begin like a definition."""
        self._unread.append((scope, node.start_byte, node.end_byte))

    def text(self, node: Node) -> str:
        return self.source.piece(node.start_byte, node.end_byte)

    def line(self, node: Node) -> int:
        return self.source.line_at(node.start_byte)

    def last_line(self, node: Node) -> int:
        """Without the comments at the end, which tree-sitter takes to the block before."""
        while True:
            inner = next((child for child in reversed(node.children) if child.type != "comment"), None)
            if inner is None:
                return self.source.line_at(max(node.end_byte - 1, node.start_byte))
            node = inner

    def _look_again(self, scope: Scope, start: int, end: int) -> None:
        """Find lines in an error that begin like a definition. What is around them shows in the indentation."""
        known = set(self.found.name_ends)
        around: list[tuple[int, Scope]] = [(-1, scope)]
        for line in _DEFINITION.finditer(self.source.view, start, end):
            indent = len(line[1].expandtabs())
            while around[-1][0] >= indent:
                around.pop()
            outer = around[-1][1]
            kind, name = line[2], line[3]
            path = self.found.path_of(outer, name)
            inner = ClassScope(outer, path, [], is_enum=False) if kind == "class" else Scope(outer, path)
            around.append((indent, inner))
            if line.end(3) in known:
                continue
            if kind == "def":
                kind = "method" if type(outer) is ClassScope else "function"
            signature = self.source.piece(line.end(1), line.end()).partition("#")[0].rstrip(": \t")
            number = self.source.line_at(line.start(3))
            self.found.define(outer, Symbol(name, outer.path, kind, 0, number, signature), line.end(3))


def _errors(root: Node) -> Iterator[Node]:
    """What is wrong, or missing. A query for them takes quadratic time on some texts."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.is_error or node.is_missing:
            yield node
        if node.has_error:
            waiting += node.children


Handler = Callable[[BrokenWalk, Scope, Node, Stack], None]


def _nothing(walk: BrokenWalk, scope: Scope, node: Node, stack: Stack) -> None:
    """Uses no names."""


def _error(walk: BrokenWalk, scope: Scope, node: Node, stack: Stack) -> None:
    walk.unread(scope, node)
    stack += node.named_children[::-1]


def _identifier(walk: BrokenWalk, scope: Scope, node: Node, stack: Stack) -> None:
    if not node.is_missing:
        scope.keys.append(walk.text(node))
        scope.ends.append(node.end_byte)


def _attribute(walk: BrokenWalk, scope: Scope, node: Node, stack: Stack) -> None:
    """`a.b.c`, as three keys; of what follows an expression nothing is known but the names."""
    attributes: list[Node] = []
    value: Node | None = node
    while value is not None and value.type == "attribute":
        name = value.child_by_field_name("attribute")
        if name is not None:
            attributes.append(name)
        value = value.child_by_field_name("object")
        if value is not None and value.type in _SPLATS and value.named_children:  # `*a.b` is read as `(*a).b`
            value = value.named_children[0]
    parts = [walk.text(value) if value is not None and value.type == "identifier" else ""]
    for name in reversed(attributes):
        if len(parts) < MOST_PARTS and parts[0]:
            parts.append(walk.text(name))
            scope.keys.append(tuple(parts))
        else:
            scope.keys.append(("", walk.text(name)))
        scope.ends.append(name.end_byte)
    if value is not None:
        stack.append(value)


def _call(walk: BrokenWalk, scope: Scope, node: Node, stack: Stack) -> None:
    stack += node.named_children[::-1]
    function = node.child_by_field_name("function")
    if function is None or walk.text(function).rpartition(".")[2] not in WATCHED:
        return
    try:
        call = ast.parse(f"({walk.text(node)})", mode="eval").body
    except REFUSALS:
        return
    call.lineno = walk.line(node)
    call.col_offset = node.start_byte
    walk.found.calls.append((scope, call))


def _keyword_argument(walk: BrokenWalk, scope: Scope, node: Node, stack: Stack) -> None:
    stack += node.named_children[1:]


def _string(walk: BrokenWalk, scope: Scope, node: Node, stack: Stack) -> None:
    fields = [child for child in node.named_children if child.type == "interpolation"]
    if fields and scope.in_string:
        stack += fields
    elif fields:
        walk.later(scope.replacement_field(), fields)


def _lambda(walk: BrokenWalk, scope: Scope, node: Node, stack: Stack) -> None:
    inner = Scope(scope, scope.path)
    definitions.parameters(walk, inner, node.child_by_field_name("parameters"), stack)
    walk.later(inner, definitions.fields(node, "body"))


def _comprehension(walk: BrokenWalk, scope: Scope, node: Node, stack: Stack) -> None:
    """The first iterable is evaluated outside."""
    inner = Scope(scope, scope.path, within=scope.assigns_in())
    nodes = definitions.fields(node, "body")
    first = True
    for clause in node.named_children:
        if clause.type == "for_in_clause":
            (stack if first else nodes).extend(definitions.fields(clause, "right"))
            first = False
            definitions.store(walk, inner, clause, clause.child_by_field_name("left"), nodes)
        elif clause.type == "if_clause":
            nodes.append(clause)
    walk.later(inner, nodes)


def _for(walk: BrokenWalk, scope: Scope, node: Node, stack: Stack) -> None:
    for name in ("alternative", "body", "right"):
        stack += definitions.fields(node, name)
    definitions.store(walk, scope, node, node.child_by_field_name("left"), stack)


def _as_target(walk: BrokenWalk, scope: Scope, node: Node, stack: Stack) -> None:
    for target in node.named_children:
        definitions.store(walk, scope, node, target, stack)


def _delete(walk: BrokenWalk, scope: Scope, node: Node, stack: Stack) -> None:
    for target in node.named_children:
        definitions.store(walk, scope, node, target, stack)


def _global(walk: BrokenWalk, scope: Scope, node: Node, stack: Stack) -> None:
    how = GLOBAL if node.type == "global_statement" else NONLOCAL
    if scope is not walk.found.module:
        scope.bound.update({walk.text(name): how for name in node.named_children})


def _soft_keyword(walk: BrokenWalk, scope: Scope, node: Node, stack: Stack) -> None:
    walk.found.soft_keywords.append(node.children[0].end_byte)
    stack += node.named_children[::-1]


def _pattern(walk: BrokenWalk, scope: Scope, node: Node, stack: Stack) -> None:
    """A name in a pattern is bound; a dotted one is a value."""
    for child in node.named_children:
        if child.type == "dotted_name" and child.named_child_count > 1:
            _dotted_value(walk, scope, child)
        elif child.type == "dotted_name":
            scope.bound.setdefault(walk.text(child), LOCAL)
        elif child.type == "identifier":
            if node.type != "keyword_pattern":
                scope.bound.setdefault(walk.text(child), LOCAL)
        else:
            stack.append(child)


def _as_pattern(walk: BrokenWalk, scope: Scope, node: Node, stack: Stack) -> None:
    if any(child.type == "case_pattern" for child in node.named_children):
        _pattern(walk, scope, node, stack)
    else:  # of `with` or `except`
        stack += node.named_children[::-1]


def _class_pattern(walk: BrokenWalk, scope: Scope, node: Node, stack: Stack) -> None:
    first, *rest = node.named_children
    _dotted_value(walk, scope, first)
    stack += rest


def _dotted_value(walk: BrokenWalk, scope: Scope, node: Node) -> None:
    parts: list[str] = []
    for name in node.named_children:
        parts.append(walk.text(name))
        scope.keys.append(tuple(parts) if len(parts) > 1 else parts[0])
        scope.ends.append(name.end_byte)


_HANDLERS: dict[str, Handler] = {
    "ERROR": _error,
    "as_pattern": _as_pattern,
    "as_pattern_target": _as_target,
    "assignment": definitions.assignment,
    "attribute": _attribute,
    "augmented_assignment": definitions.augmented_assignment,
    "call": _call,
    "case_clause": _soft_keyword,
    "case_pattern": _pattern,
    "class_definition": definitions.class_,
    "class_pattern": _class_pattern,
    "comment": _nothing,
    "decorated_definition": definitions.decorated,
    "delete_statement": _delete,
    "dict_pattern": _pattern,
    "dictionary_comprehension": _comprehension,
    "for_statement": _for,
    "function_definition": definitions.function,
    "future_import_statement": definitions.import_from,
    "generator_expression": _comprehension,
    "global_statement": _global,
    "identifier": _identifier,
    "import_from_statement": definitions.import_from,
    "import_statement": definitions.import_,
    "keyword_argument": _keyword_argument,
    "keyword_pattern": _pattern,
    "lambda": _lambda,
    "list_comprehension": _comprehension,
    "list_pattern": _pattern,
    "match_statement": _soft_keyword,
    "named_expression": definitions.named_expression,
    "nonlocal_statement": _global,
    "set_comprehension": _comprehension,
    "splat_pattern": _pattern,
    "string": _string,
    "tuple_pattern": _pattern,
    "type_alias_statement": definitions.type_alias,
    "union_pattern": _pattern,
}
