"""The walk knows every node of this Python's syntax trees."""

from __future__ import annotations

import ast

from torchreel.atlas.read.python import walk

HANDLED_IN_THE_LOOP = {ast.Name, ast.Attribute, ast.Call, ast.Constant}
# Parts of others, which read them themselves; expressions of `mode="eval"` and such; and classes that no tree has.
NEVER_ALONE = {
    ast.alias, ast.arg, ast.arguments, ast.comprehension, ast.keyword, ast.match_case, ast.withitem, ast.TypeIgnore,
}  # fmt: skip


def test_every_statement_expression_and_pattern_is_handled() -> None:
    kinds = {one for base in (ast.stmt, ast.expr, ast.pattern, ast.excepthandler) for one in base.__subclasses__()}
    old = {one for one in kinds if issubclass(one, ast.Constant)} - {ast.Constant}
    handled = {one for one in walk._HANDLERS if issubclass(one, ast.AST)}
    assert kinds - old == handled | HANDLED_IN_THE_LOOP
    assert not handled & NEVER_ALONE
