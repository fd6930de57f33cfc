"""What binds names in a Python file: functions, classes, assignments and imports."""

from __future__ import annotations

import ast
import re
from ast import Attribute, Call, Name
from functools import partial
from typing import TYPE_CHECKING, Any

from torchreel.atlas.model import Import, Symbol
from torchreel.atlas.read.python import signatures as signatures
from torchreel.atlas.read.python.nodes import dotted, last_name
from torchreel.atlas.read.python.registrations import REGISTERING
from torchreel.atlas.read.python.scopes import GLOBAL, LOCAL, NONLOCAL, ClassScope, Scope
from torchreel.atlas.read.python.text import BLANKS
from torchreel.atlas.read.python.tokens import WORD

if TYPE_CHECKING:
    from torchreel.atlas.read.python.walk import Walk

Node = Any
Stack = list[Node]

_NAME = re.compile(rf"(?:async{BLANKS}+)?(?:def|class){BLANKS}+([{WORD}]+)")


def function(walk: Walk, scope: Scope, node: Node, stack: Stack) -> None:
    """`def`, also `async def`."""
    inner = Scope(scope, walk.found.path_of(scope, node.name))
    stack += node.decorator_list
    if node.returns is not None:
        stack.append(node.returns)
    first = parameters(inner, node.args, stack)
    decorators = [last_name(decorator) for decorator in node.decorator_list]
    if first and type(scope) is ClassScope and "staticmethod" not in decorators:
        inner.bound[first] = scope
    kind = "method" if type(scope) is ClassScope else "function"
    index = _define(walk, scope, node, kind, walk.body(inner, node.body), overload="overload" in decorators)
    for decorator, name in zip(node.decorator_list, decorators, strict=True):
        if name in REGISTERING:
            walk.found.decorated[decorator] = index
            if type(decorator) is Attribute:
                walk.found.calls.append((scope, decorator))


def class_(walk: Walk, scope: Scope, node: Node, stack: Stack) -> None:
    stack += node.decorator_list
    stack += node.bases
    stack += [keyword.value for keyword in node.keywords]
    bases = [parts for parts in map(_base, node.bases) if parts]
    is_enum = any(base[-1].endswith(("Enum", "Flag")) for base in bases)
    inner = ClassScope(scope, walk.found.path_of(scope, node.name), bases, is_enum=is_enum)
    index = _define(walk, scope, node, "class", walk.body(inner, node.body))
    walk.found.classes[index] = inner


def _define(walk: Walk, scope: Scope, node: Node, kind: str, doc: str, *, overload: bool = False) -> int:
    begin = walk.begin(node)
    name = _NAME.match(walk.source.view, begin)
    signature = signatures.header(walk.source, begin, walk.begin(node.body[0]))
    symbol = Symbol(node.name, scope.path, kind, 0, node.end_lineno, signature, doc)
    return walk.found.define(scope, symbol, name.end() if name else begin, overload=overload)


def parameters(scope: Scope, arguments: ast.arguments, stack: Stack) -> str:
    """Bind the parameters of a function in its scope; the name of the first one.

    Defaults and annotations belong to the scope around it.
    """
    stack += arguments.defaults
    stack += arguments.kw_defaults
    positional = arguments.posonlyargs + arguments.args if arguments.posonlyargs else arguments.args
    for several in (positional, arguments.kwonlyargs, (arguments.vararg, arguments.kwarg)):
        for parameter in several:
            if parameter is not None:
                scope.bound[parameter.arg] = LOCAL
                if parameter.annotation is not None:
                    stack.append(parameter.annotation)
    return positional[0].arg if positional else ""


def _base(node: Node) -> tuple[str, ...]:
    return dotted(node.value if type(node) is ast.Subscript else node)


def assignment(walk: Walk, scope: Scope, node: Node, stack: Stack) -> None:
    value = node.value
    stack.append(value)
    for target in node.targets:
        if scope.variables or type(target) is not Name:
            store(walk, scope, node, target, stack)
        elif scope.bound.setdefault(target.id, LOCAL) is not LOCAL:
            _assign_again(walk, scope, node, target)
    if (type(value) is Call and last_name(value) == "Library") or (
        type(value) is Attribute and last_name(value.value) == "ops"
    ):
        walk.found.aliases += [(scope, target.id, value) for target in node.targets if type(target) is Name]


def annotated_assignment(walk: Walk, scope: Scope, node: Node, stack: Stack) -> None:
    stack.append(node.annotation)
    stack.append(node.value)
    store(walk, scope, node, node.target, stack)


def augmented_assignment(walk: Walk, scope: Scope, node: Node, stack: Stack) -> None:
    """It uses its target as well."""
    stack.append(node.value)
    stack.append(node.target)
    if type(node.target) is Name:
        scope.keys.append(node.target.id)
        scope.ends.append(walk.end(node.target))


def named_expression(walk: Walk, scope: Scope, node: Node, stack: Stack) -> None:
    stack.append(node.value)
    store(walk, scope.assigns_in(), node, node.target, stack)


def store(walk: Walk, scope: Scope, statement: Node, target: Node, stack: Stack) -> None:
    """Bind what is assigned to: symbols for names in modules and classes, attributes for `self.x` in methods."""
    targets = [target]
    while targets:
        leaf = targets.pop()
        kind = type(leaf)
        if kind is Name:
            if scope.variables and type(statement) in _DEFINING:
                _define_variable(walk, scope, statement, target, leaf)
            elif scope.bound.setdefault(leaf.id, LOCAL) is not LOCAL:
                _assign_again(walk, scope, statement, leaf)
        elif kind is ast.Tuple or kind is ast.List:
            targets += reversed(leaf.elts)
        elif kind is ast.Starred:
            targets.append(leaf.value)
        elif kind is Attribute and type(leaf.value) is Name:
            symbol = partial(_variable, walk, statement, target, leaf.attr, "attribute", "")
            walk.found.store(scope, leaf.value.id, leaf.attr, walk.end(leaf), symbol)
            stack.append(leaf.value)
        else:
            stack.append(leaf)


_DEFINING = (ast.Assign, ast.AnnAssign, ast.NamedExpr)


def _define_variable(walk: Walk, scope: Scope, statement: Node, target: Node, name: ast.Name) -> None:
    kind = scope.variables
    if type(statement) is ast.AnnAssign and _is_alias(statement.annotation):
        kind = "alias"
    elif type(scope) is ClassScope and scope.is_enum and is_member(name.id, statement.value):
        kind = "enumerator"
    symbol = _variable(walk, statement, target, name.id, kind, scope.path)
    walk.found.define(scope, symbol, walk.end(name))


def _is_alias(annotation: Node) -> bool:
    return last_name(annotation) == "TypeAlias" or (
        type(annotation) is ast.Constant and annotation.value in ("TypeAlias", "typing.TypeAlias")
    )


def is_member(name: str, value: object) -> bool:
    """Whether an assignment in an Enum makes a member: `_names_` with underscores around are settings."""
    return value is not None and not (name.startswith("_") and name.endswith("_"))


def _variable(walk: Walk, statement: Node, target: Node, name: str, kind: str, path: str) -> Symbol:
    begin, end = walk.begin(target), walk.end(target)
    sign, value = " =", None
    if type(statement) is ast.NamedExpr:
        sign = " :="
    elif type(statement) is ast.AnnAssign:
        end = walk.end(statement.annotation)
    if type(statement) in _DEFINING and statement.value is not None:
        before = walk.end(statement.targets[-1]) if type(statement) is ast.Assign else end
        value = (walk.source.view.find("=", before) + 1, walk.end(statement))
    shown = signatures.assignment(walk.source, walk.source.piece(begin, end), value, sign)
    last = statement.end_lineno if type(statement) in _DEFINING else target.end_lineno
    return Symbol(name, path, kind, 0, last, shown, walk.docs.get(statement, ""))


def _assign_again(walk: Walk, scope: Scope, statement: Node, name: ast.Name) -> None:
    """A name is assigned to that its function has declared global, or has as a parameter or otherwise."""
    found = walk.found
    if scope.bound[name.id] is not GLOBAL:
        found.rebind(scope, name.id)
    elif name.id not in found.module.bound:
        symbol = _variable(walk, statement, name, name.id, found.module.variables, "")
        found.define(found.module, symbol, walk.end(name))


def global_(walk: Walk, scope: Scope, node: Node, stack: Stack) -> None:
    if scope is not walk.found.module:
        scope.bound.update(dict.fromkeys(node.names, GLOBAL))


def nonlocal_(walk: Walk, scope: Scope, node: Node, stack: Stack) -> None:
    scope.bound.update(dict.fromkeys(node.names, NONLOCAL))


def import_(walk: Walk, scope: Scope, node: Node, stack: Stack) -> None:
    """`import a.b` binds `a`; `import a.b as c` binds `c` to `a.b`."""
    for alias in node.names:
        first, _, rest = alias.name.partition(".")
        name, path = (alias.asname, alias.name) if alias.asname else (first, first)
        local = alias.asname or (alias.name if rest else "")
        walk.found.imported(scope, Import(alias.lineno, alias.name, False, local_name(alias.name, local)), name, path)


def import_from(walk: Walk, scope: Scope, node: Node, stack: Stack) -> None:
    """`from ..a import b` binds `b` to `..a.b`."""
    module = "." * node.level + (node.module or "")
    for alias in node.names:
        if alias.name == "*":
            walk.found.imports.append(Import(alias.lineno, module, True))
            continue
        path = f"{module}.{alias.name}" if node.module else module + alias.name
        local = alias.asname or ""
        row = Import(alias.lineno, path, False, local_name(path, local))
        walk.found.imported(scope, row, local or alias.name, path)


def local_name(target: str, name: str) -> str:
    """The name of an import in this file, where that is not the last part of what is imported."""
    return "" if name == target.rpartition(".")[2] else name
