"""What binds names in a Python file that tree-sitter has read: functions, classes, assignments and imports."""

from __future__ import annotations

import ast
import re
from functools import partial
from typing import TYPE_CHECKING

from tree_sitter import Node

from torchreel.atlas.model import Import, Symbol
from torchreel.atlas.read.python import signatures as signatures
from torchreel.atlas.read.python.definitions import is_member, local_name
from torchreel.atlas.read.python.repair import REFUSALS
from torchreel.atlas.read.python.scopes import GLOBAL, LOCAL, ClassScope, Scope

if TYPE_CHECKING:
    from torchreel.atlas.read.python.broken import BrokenWalk, Stack


def fields(node: Node, name: str) -> list[Node]:
    """The nodes in a field: one, several or none."""
    return node.children_by_field_name(name)


def decorated(walk: BrokenWalk, scope: Scope, node: Node, stack: Stack) -> None:
    decorators = [child for child in node.named_children if child.type == "decorator"]
    names = [walk.text(one).lstrip("@ \t").partition("(")[0].rpartition(".")[2].strip() for one in decorators]
    for definition in fields(node, "definition"):
        walk.decorators[definition.id] = names
        stack.append(definition)
    stack += decorators


def function(walk: BrokenWalk, scope: Scope, node: Node, stack: Stack) -> None:
    name = node.child_by_field_name("name")
    if name is None or name.is_missing:
        return
    around, outside = _around(walk, scope, node, stack)
    inner = Scope(around, walk.found.path_of(scope, walk.text(name)))
    first = parameters(walk, inner, node.child_by_field_name("parameters"), outside)
    outside += fields(node, "return_type")
    decorators = walk.decorators.get(node.id, [])
    if first and type(scope) is ClassScope and "staticmethod" not in decorators:
        inner.bound[first] = scope
    kind = "method" if type(scope) is ClassScope else "function"
    _define(walk, scope, node, name, kind, overload="overload" in decorators)
    walk.later(inner, _body(node))


def class_(walk: BrokenWalk, scope: Scope, node: Node, stack: Stack) -> None:
    name = node.child_by_field_name("name")
    if name is None or name.is_missing:
        return
    around, outside = _around(walk, scope, node, stack)
    supers = [one for several in fields(node, "superclasses") for one in several.named_children]
    bases = [tuple(walk.text(one).partition("[")[0].split(".")) for one in supers if one.type in _BASES]
    is_enum = any(base[-1].endswith(("Enum", "Flag")) for base in bases)
    inner = ClassScope(around, walk.found.path_of(scope, walk.text(name)), bases, is_enum=is_enum)
    walk.found.classes[_define(walk, scope, node, name, "class")] = inner
    outside += supers
    walk.later(inner, _body(node))


_BASES = ("identifier", "attribute", "subscript")


def _body(node: Node) -> list[Node]:
    return [child for block in fields(node, "body") for child in block.children]


def _define(walk: BrokenWalk, scope: Scope, node: Node, name: Node, kind: str, *, overload: bool = False) -> int:
    blocks = fields(node, "body")
    statements = [child for child in _body(node) if child.is_named and child.type != "comment"]
    doc = docstring(walk, statements[0]) if statements else ""
    signature = signatures.header(walk.source, node.start_byte, blocks[0].start_byte if blocks else node.end_byte)
    symbol = Symbol(walk.text(name), scope.path, kind, 0, walk.last_line(node), signature, doc)
    return walk.found.define(scope, symbol, name.end_byte, overload=overload)


def docstring(walk: BrokenWalk, statement: Node) -> str:
    """What a statement says that is nothing but a string."""
    if statement.type != "expression_statement" or statement.named_child_count != 1:
        return ""
    string = statement.named_children[0]
    if string.type not in ("string", "concatenated_string"):
        return ""
    try:
        value = ast.literal_eval(walk.text(string))
    except REFUSALS:
        return ""
    if not isinstance(value, str):
        return ""
    doc = signatures.cleaned(value)
    walk.found.docs.append((string.start_byte, doc))
    return doc


def parameters(walk: BrokenWalk, scope: Scope, node: Node | None, stack: Stack) -> str:
    """Bind the parameters of a function in its scope; the name of the first one."""
    first = ""
    for child in node.named_children if node is not None else []:
        named = child
        while named.type in _SPLATS or named.type in _TYPED:
            stack += fields(named, "type") + fields(named, "value")
            inner = fields(named, "name") or named.named_children
            if not inner:
                break
            named = inner[0]
        if named.type == "identifier":
            scope.bound[walk.text(named)] = LOCAL
            if not first and child.type not in _SPLATS:
                first = walk.text(named)
    return first


_SPLATS = ("list_splat_pattern", "dictionary_splat_pattern")
_TYPED = ("typed_parameter", "default_parameter", "typed_default_parameter")


def _around(walk: BrokenWalk, scope: Scope, node: Node, stack: Stack) -> tuple[Scope, Stack]:
    """The scope around a definition, and the nodes that wait in it; `[T: int = str, *Ts]` makes one for its names."""
    several = fields(node, "type_parameters")
    if not several:
        return scope, stack
    around = Scope(scope, scope.path, within=scope.assigns_in())
    outside: Stack = []
    walk.later(around, outside)
    for parameter in several[0].named_children:
        _bind_type_parameter(walk, around, parameter, outside)
    return around, outside


def _bind_type_parameter(walk: BrokenWalk, scope: Scope, node: Node, stack: Stack) -> None:
    """The first name in it is the parameter."""
    rest: list[Node] = []
    while node.type != "identifier" and node.named_children:
        node, *others = node.named_children
        rest += others
    if node.type == "identifier":
        scope.bound[walk.text(node)] = LOCAL
    stack += rest


_ALIAS = re.compile(r"\w+\s*(?:\[.*\])?", re.DOTALL)


def type_alias(walk: BrokenWalk, scope: Scope, node: Node, stack: Stack) -> None:
    """`type X[T] = ...`."""
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    if left is None or right is None or not _ALIAS.fullmatch(walk.text(left)):
        # `type(x).y = 1` is read so as well.
        scope.keys.append("type")
        scope.ends.append(node.children[0].end_byte)
        stack += node.named_children[::-1]
        return
    walk.found.soft_keywords.append(node.children[0].end_byte)
    inner = Scope(scope, scope.path, within=scope.assigns_in())
    name = left
    while name.type != "identifier" and name.named_children:
        name, *others = name.named_children
        for child in [one for several in others for one in several.named_children]:
            _bind_type_parameter(walk, inner, child, stack)
    signature = signatures.assignment(
        walk.source, walk.source.piece(node.start_byte, left.end_byte), (right.start_byte, right.end_byte)
    )
    symbol = Symbol(walk.text(name), scope.path, "alias", 0, walk.last_line(node), signature)
    walk.found.define(scope, symbol, name.end_byte)
    walk.later(inner, [right])


def assignment(walk: BrokenWalk, scope: Scope, node: Node, stack: Stack) -> None:
    """`A = B = value` is an assignment in an assignment."""
    right = node.child_by_field_name("right")
    stack += fields(node, "type") + fields(node, "right")
    value = right
    while value is not None and value.type == "assignment":
        value = value.child_by_field_name("right")
    store(walk, scope, node, node.child_by_field_name("left"), stack, value)


def augmented_assignment(walk: BrokenWalk, scope: Scope, node: Node, stack: Stack) -> None:
    """It uses its target as well."""
    stack += node.named_children[::-1]
    for target in fields(node, "left"):
        if target.type == "identifier":
            scope.bound.setdefault(walk.text(target), LOCAL)


def named_expression(walk: BrokenWalk, scope: Scope, node: Node, stack: Stack) -> None:
    value = node.child_by_field_name("value")
    stack += fields(node, "value")
    store(walk, scope.assigns_in(), node, node.child_by_field_name("name"), stack, value)


_LISTS = (
    "pattern_list",
    "tuple_pattern",
    "list_pattern",
    "tuple",
    "list",
    "parenthesized_expression",
    "expression_list",
)
_DEFINING = ("assignment", "named_expression")


def store(
    walk: BrokenWalk, scope: Scope, statement: Node, target: Node | None, stack: Stack, value: Node | None = None
) -> None:
    """Bind what is assigned to: symbols for names in modules and classes, attributes for `self.x` in methods."""
    leaves = [target] if target is not None else []
    while leaves:
        leaf = leaves.pop()
        if leaf.type == "identifier":
            _store_name(walk, scope, statement, leaf, value)
        elif leaf.type in _LISTS or leaf.type in _SPLATS:
            leaves += leaf.named_children[::-1]
        elif leaf.type == "attribute" and (holder := leaf.named_children[0]).type == "identifier":
            name = leaf.named_children[-1]
            symbol = partial(_variable, walk, statement, walk.text(name), "attribute", "", value)
            walk.found.store(scope, walk.text(holder), walk.text(name), name.end_byte, symbol)
            stack.append(holder)
        else:
            stack.append(leaf)


def _store_name(walk: BrokenWalk, scope: Scope, statement: Node, leaf: Node, value: Node | None) -> None:
    name = walk.text(leaf)
    found = walk.found
    if scope.variables and statement.type in _DEFINING:
        kind = scope.variables
        if walk.text(statement).partition("=")[0].rstrip().endswith("TypeAlias"):
            kind = "alias"
        elif type(scope) is ClassScope and scope.is_enum and is_member(name, value):
            kind = "enumerator"
        found.define(scope, _variable(walk, statement, name, kind, scope.path, value), leaf.end_byte)
    elif scope.bound.setdefault(name, LOCAL) is not LOCAL:
        if scope.bound[name] is not GLOBAL:
            found.rebind(scope, name)
        elif name not in found.module.bound and statement.type in _DEFINING:
            symbol = _variable(walk, statement, name, found.module.variables, "", value)
            found.define(found.module, symbol, leaf.end_byte)


def _variable(walk: BrokenWalk, statement: Node, name: str, kind: str, path: str, value: Node | None) -> Symbol:
    target = (fields(statement, "left") or fields(statement, "name") or [statement])[0]
    annotation = fields(statement, "type") if statement.type == "assignment" else []
    end = annotation[0].end_byte if annotation else target.end_byte
    place = (value.start_byte, statement.end_byte) if value is not None else None
    sign = " :=" if statement.type == "named_expression" else " ="
    shown = signatures.assignment(walk.source, walk.source.piece(target.start_byte, end), place, sign)
    return Symbol(name, path, kind, 0, walk.last_line(statement), shown)


def import_(walk: BrokenWalk, scope: Scope, node: Node, stack: Stack) -> None:
    for child in fields(node, "name"):
        target, alias = _imported(walk, child)
        first, _, rest = target.partition(".")
        row = Import(walk.line(child), target, False, local_name(target, alias or (target if rest else "")))
        walk.found.imported(scope, row, alias or first, target if alias else first)


def import_from(walk: BrokenWalk, scope: Scope, node: Node, stack: Stack) -> None:
    future = node.type == "future_import_statement"
    module = "__future__" if future else "".join(map(walk.text, fields(node, "module_name"))).replace(" ", "")
    for child in fields(node, "name"):
        name, alias = _imported(walk, child)
        path = module + name if module.endswith(".") else f"{module}.{name}"
        row = Import(walk.line(child), path, False, local_name(path, alias))
        walk.found.imported(scope, row, alias or name, path)
    for child in node.named_children:
        if child.type == "wildcard_import":
            walk.found.imports.append(Import(walk.line(child), module, True))


def _imported(walk: BrokenWalk, node: Node) -> tuple[str, str]:
    """The name that is imported, and the one that it gets."""
    name = (fields(node, "name") or [node])[0]
    return "".join(walk.text(name).split()), "".join(map(walk.text, fields(node, "alias")))
