"""One walk over the syntax tree of a Python file: what it defines, imports, binds and uses.

Nothing is recursive, so that no nesting is too deep: nodes wait in a list until the end of their scope, scopes in
another until the end of the file. So nodes come in no certain order within an expression, which nobody sees, since all
that is found carries its offset.
"""

from __future__ import annotations

import ast
from ast import Attribute, Call, Constant, Load, Name
from collections import deque
from collections.abc import Callable, Container, Sequence
from itertools import pairwise
from typing import Any

from torchreel.atlas.read.python import definitions as definitions
from torchreel.atlas.read.python.calls import WATCHED
from torchreel.atlas.read.python.found import Found
from torchreel.atlas.read.python.nodes import last_name
from torchreel.atlas.read.python.scopes import LOCAL, MOST_PARTS, Scope
from torchreel.atlas.read.python.signatures import cleaned
from torchreel.atlas.read.python.text import PythonText

# Nodes of all kinds wait in one list.
Node = Any
Stack = list[Node]


class Walk:
    """The walk over one file: `run` it, once."""

    def __init__(self, source: PythonText, placeholders: Container[int] = ()) -> None:
        """`placeholders` are offsets of `pass` where something was taken out that `ast` refused."""
        self.source = source
        self.placeholders = placeholders
        self.scope_at: dict[int, Scope] = {}
        """The scope that each placeholder is in."""
        self.begins = source.begins
        self.found = Found()
        self.docs: dict[Node, str] = {}
        """What the strings below assignments say of them."""
        self._waiting: deque[tuple[Scope, Sequence[Node]]] = deque()

    def run(self, tree: ast.Module) -> Found:
        if tree.body:
            self.found.doc = self.body(self.found.module, tree.body)
            self.found.first_statement = self.begin(tree.body[0])
        while self._waiting:
            self._walk(*self._waiting.popleft())
        return self.found

    def _walk(self, scope: Scope, nodes: Sequence[Node]) -> None:
        """Walk all that belongs to one scope. Most nodes are names, attributes, calls and constants: here they are."""
        stack = list(reversed(nodes))
        begins, bound, calls = self.begins, scope.bound, self.found.calls
        use, end_at, next_node = scope.keys.append, scope.ends.append, stack.pop
        while stack:
            node = next_node()
            kind = type(node)
            if kind is Name:
                if type(node.ctx) is Load:
                    use(node.id)
                    end_at(begins[node.lineno] + node.end_col_offset)
                elif bound.setdefault(node.id, LOCAL) is not LOCAL:
                    self.found.rebind(scope, node.id)
            elif kind is Attribute:
                value = node.value
                holder = type(value)
                if holder is Name:
                    use((value.id, node.attr))
                    end_at(begins[node.end_lineno] + node.end_col_offset)
                    use(value.id)
                    end_at(begins[value.lineno] + value.end_col_offset)
                else:
                    self._chain(scope, node, stack)
            elif kind is Call:
                function = node.func
                if type(function) is Name or (type(function) is Attribute and function.attr in WATCHED):
                    calls.append((scope, node))
                stack.append(function)
                stack += node.args
                for keyword in node.keywords:
                    stack.append(keyword.value)
            elif kind is not Constant:
                _HANDLERS[kind](self, scope, node, stack)

    def _chain(self, scope: Scope, node: Node, stack: Stack) -> None:
        """`a.b.c`, as three keys; of what follows an expression nothing is known but the names."""
        attributes = [node]
        value = node.value
        while type(value) is Attribute:
            attributes.append(value)
            value = value.value
        parts = [value.id if type(value) is Name else ""]
        for attribute in reversed(attributes):
            if len(parts) < MOST_PARTS and parts[0]:
                parts.append(attribute.attr)
                scope.keys.append(tuple(parts))
            else:
                scope.keys.append(("", attribute.attr))
            scope.ends.append(self.begins[attribute.end_lineno] + attribute.end_col_offset)
        stack.append(value)

    def body(self, scope: Scope, body: list[Node]) -> str:
        """Let a module, class or function wait for its turn; its docstring."""
        self.later(scope, body)
        if scope.variables:
            for before, node in pairwise(body):
                if type(node) is ast.Expr and type(before) in (ast.Assign, ast.AnnAssign):
                    self.docs[before] = self._string(node)
        return self._string(body[0])

    def _string(self, node: Node) -> str:
        """What a statement says that is nothing but a string."""
        if type(node) is not ast.Expr or type(node.value) is not Constant or type(node.value.value) is not str:
            return ""
        doc = cleaned(node.value.value)
        self.found.docs.append((self.begin(node), doc))
        return doc

    def later(self, scope: Scope, nodes: Sequence[Node]) -> None:
        """Let a scope wait for its turn."""
        self.found.scopes.append(scope)
        self._waiting.append((scope, nodes))

    def begin(self, node: Node) -> int:
        line, column = int(node.lineno), int(node.col_offset)
        return self.begins[line] + column

    def end(self, node: Node) -> int:
        line, column = int(node.end_lineno), int(node.end_col_offset)
        return self.begins[line] + column


Handler = Callable[[Walk, Scope, Node, Stack], None]


def _nothing(walk: Walk, scope: Scope, node: Node, stack: Stack) -> None:
    """Has no names."""


def _fields(*names: str) -> Handler:
    """For nodes with one node, or none, in each of these fields."""

    def handle(walk: Walk, scope: Scope, node: Node, stack: Stack) -> None:
        for name in names:
            stack.append(getattr(node, name))

    return handle


def _value(walk: Walk, scope: Scope, node: Node, stack: Stack) -> None:
    stack.append(node.value)


def _elements(walk: Walk, scope: Scope, node: Node, stack: Stack) -> None:
    stack += node.elts


def _subscript(walk: Walk, scope: Scope, node: Node, stack: Stack) -> None:
    stack.append(node.value)
    stack.append(node.slice)


def _binary(walk: Walk, scope: Scope, node: Node, stack: Stack) -> None:
    stack.append(node.left)
    stack.append(node.right)


def _boolean(walk: Walk, scope: Scope, node: Node, stack: Stack) -> None:
    stack += node.values


def _compare(walk: Walk, scope: Scope, node: Node, stack: Stack) -> None:
    stack.append(node.left)
    stack += node.comparators


def _dict(walk: Walk, scope: Scope, node: Node, stack: Stack) -> None:
    stack += node.keys
    stack += node.values


def _formatted_string(walk: Walk, scope: Scope, node: Node, stack: Stack) -> None:
    if scope.in_string:
        stack += node.values
    else:
        walk.later(scope.replacement_field(), node.values)


def _formatted_value(walk: Walk, scope: Scope, node: Node, stack: Stack) -> None:
    stack.append(node.value)
    if node.format_spec is not None:
        stack.append(node.format_spec)


def _lambda(walk: Walk, scope: Scope, node: Node, stack: Stack) -> None:
    inner = Scope(scope, scope.path)
    definitions.parameters(inner, node.args, stack)
    walk.later(inner, [node.body])


def _comprehension(walk: Walk, scope: Scope, node: Node, stack: Stack) -> None:
    """The first iterable is evaluated outside."""
    inner = Scope(scope, scope.path, within=scope.assigns_in())
    nodes = [node.key, node.value] if type(node) is ast.DictComp else [node.elt]
    for number, generator in enumerate(node.generators):
        (nodes if number else stack).append(generator.iter)
        nodes.append(generator.target)
        nodes += generator.ifs
    walk.later(inner, nodes)


def _if(walk: Walk, scope: Scope, node: Node, stack: Stack) -> None:
    stack += node.orelse[::-1]
    stack += node.body[::-1]
    stack.append(node.test)


def _for(walk: Walk, scope: Scope, node: Node, stack: Stack) -> None:
    stack += node.orelse[::-1]
    stack += node.body[::-1]
    stack.append(node.iter)
    definitions.store(walk, scope, node, node.target, stack)


def _with(walk: Walk, scope: Scope, node: Node, stack: Stack) -> None:
    stack += node.body[::-1]
    for item in node.items:
        stack.append(item.context_expr)
        if item.optional_vars is not None:
            definitions.store(walk, scope, node, item.optional_vars, stack)
            if type(item.optional_vars) is Name and last_name(item.context_expr) == "_scoped_library":
                walk.found.aliases.append((scope, item.optional_vars.id, item.context_expr))


def _try(walk: Walk, scope: Scope, node: Node, stack: Stack) -> None:
    stack += node.finalbody[::-1]
    stack += node.orelse[::-1]
    stack += node.handlers[::-1]
    stack += node.body[::-1]


def _except(walk: Walk, scope: Scope, node: Node, stack: Stack) -> None:
    stack += node.body[::-1]
    stack.append(node.type)
    if node.name:
        scope.bound.setdefault(node.name, LOCAL)


def _pass(walk: Walk, scope: Scope, node: Node, stack: Stack) -> None:
    if walk.begin(node) in walk.placeholders:
        walk.scope_at[walk.begin(node)] = scope


def _match(walk: Walk, scope: Scope, node: Node, stack: Stack) -> None:
    walk.found.soft_keywords.append(walk.begin(node) + len("match"))
    for case in reversed(node.cases):
        stack += case.body[::-1]
        stack += (case.guard, case.pattern)
        # The case itself has no place. Before its pattern there are blanks and brackets at most.
        walk.found.soft_keywords.append(walk.source.view.rfind("case", 0, walk.begin(case.pattern)) + len("case"))
    stack.append(node.subject)


def _match_capture(walk: Walk, scope: Scope, node: Node, stack: Stack) -> None:
    if type(node) is ast.MatchAs:
        stack.append(node.pattern)
    elif type(node) is ast.MatchMapping:
        stack += node.keys
        stack += node.patterns
    name = node.rest if type(node) is ast.MatchMapping else node.name
    if name:
        scope.bound.setdefault(name, LOCAL)


def _match_several(walk: Walk, scope: Scope, node: Node, stack: Stack) -> None:
    stack += node.patterns


def _match_class(walk: Walk, scope: Scope, node: Node, stack: Stack) -> None:
    stack.append(node.cls)
    stack += node.patterns
    stack += node.kwd_patterns


_HANDLERS: dict[type, Handler] = {
    type(None): _nothing,
    ast.AnnAssign: definitions.annotated_assignment,
    ast.Assert: _fields("test", "msg"),
    ast.Assign: definitions.assignment,
    ast.AsyncFor: _for,
    ast.AsyncFunctionDef: definitions.function,
    ast.AsyncWith: _with,
    ast.AugAssign: definitions.augmented_assignment,
    ast.Await: _value,
    ast.BinOp: _binary,
    ast.BoolOp: _boolean,
    ast.Break: _nothing,
    ast.ClassDef: definitions.class_,
    ast.Compare: _compare,
    ast.Continue: _nothing,
    ast.Delete: lambda walk, scope, node, stack: stack.extend(node.targets),
    ast.Dict: _dict,
    ast.DictComp: _comprehension,
    ast.ExceptHandler: _except,
    ast.Expr: _value,
    ast.For: _for,
    ast.FormattedValue: _formatted_value,
    ast.FunctionDef: definitions.function,
    ast.GeneratorExp: _comprehension,
    ast.Global: definitions.global_,
    ast.If: _if,
    ast.IfExp: _fields("test", "body", "orelse"),
    ast.Import: definitions.import_,
    ast.ImportFrom: definitions.import_from,
    ast.JoinedStr: _formatted_string,
    ast.Lambda: _lambda,
    ast.List: _elements,
    ast.ListComp: _comprehension,
    ast.Match: _match,
    ast.MatchAs: _match_capture,
    ast.MatchClass: _match_class,
    ast.MatchMapping: _match_capture,
    ast.MatchOr: _match_several,
    ast.MatchSequence: _match_several,
    ast.MatchSingleton: _nothing,
    ast.MatchStar: _match_capture,
    ast.MatchValue: _value,
    ast.NamedExpr: definitions.named_expression,
    ast.Nonlocal: definitions.nonlocal_,
    ast.Pass: _pass,
    ast.Raise: _fields("exc", "cause"),
    ast.Return: _value,
    ast.Set: _elements,
    ast.SetComp: _comprehension,
    ast.Slice: _fields("lower", "upper", "step"),
    ast.Starred: _value,
    ast.Subscript: _subscript,
    ast.Try: _try,
    ast.TryStar: _try,
    ast.Tuple: _elements,
    ast.UnaryOp: lambda walk, scope, node, stack: stack.append(node.operand),
    ast.While: _if,
    ast.With: _with,
    ast.Yield: _value,
    ast.YieldFrom: _value,
}
