"""Sizes that an exported program computes from others: expressions that PyTorch lets sympy evaluate as Python.

Files of today write them as calls, Add(Symbol('s0', integer=True), Integer(1)), older ones as s0 + 1.
"""

from __future__ import annotations

import ast
import re

_FUNCTIONS = {
    "Abs",
    "Add",
    "And",
    "BooleanFalse",
    "BooleanTrue",
    "CeilDiv",
    "CeilToInt",
    "CleanDiv",
    "Eq",
    "Equality",
    "ExprCondPair",
    "Float",
    "FloatPow",
    "FloatTrueDiv",
    "FloorDiv",
    "FloorToInt",
    "Ge",
    "GreaterThan",
    "Gt",
    "Identity",
    "IntTrueDiv",
    "Integer",
    "IsNonOverlappingAndDenseIndicator",
    "LShift",
    "Le",
    "LessThan",
    "Lt",
    "Max",
    "Min",
    "Mod",
    "ModularIndexing",
    "Mul",
    "Ne",
    "Not",
    "Or",
    "Piecewise",
    "Pow",
    "PowByNatural",
    "PythonMod",
    "RShift",
    "Rational",
    "RoundDecimal",
    "RoundToInt",
    "StrictGreaterThan",
    "StrictLessThan",
    "Symbol",
    "ToFloat",
    "TruncToFloat",
    "TruncToInt",
    "Unequality",
    "Where",
    "ceiling",
    "floor",
}
_POWERS = {"Pow", "PowByNatural", "FloatPow", "LShift", "RShift"}
_ALLOWED = (
    ast.Expression,
    ast.BinOp,
    ast.UnaryOp,
    ast.BoolOp,
    ast.Compare,
    ast.Call,
    ast.keyword,
    ast.Name,
    ast.Constant,
    ast.Tuple,
    ast.Load,
    ast.operator,
    ast.unaryop,
    ast.boolop,
    ast.cmpop,
)
# The name of a symbol, the digits of a number.
_TAKE_TEXT = {"Symbol", "Float"}
# Assumptions on a symbol, the bits of a number.
_KEYWORD_VALUES = {True, False, None, 15, 53}
_TEXT = re.compile(r"[\w.+\-]{0,64}", re.ASCII)
_LONGEST = 4000
_DEEPEST = 100
_LARGEST_EXPONENT = 64


def is_plain_expression(text: str) -> bool:
    """Whether it is arithmetic of numbers and symbols alone, and small enough to be evaluated in no time."""
    if len(text) > _LONGEST:
        return False
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    nodes = _nodes(tree)
    if nodes is None:
        return False
    texts = {id(argument) for node in nodes if _called(node) in _TAKE_TEXT for argument in node.args}  # type: ignore[attr-defined]
    return all(_is_plain(node, id(node) in texts) for node in nodes)


def _nodes(tree: ast.AST) -> list[ast.AST] | None:
    """None if they lie too deep within each other: whoever evaluates them calls itself for each level."""
    nodes: list[ast.AST] = []
    level = [tree]
    for _ in range(_DEEPEST):
        nodes += level
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    return None if level else nodes


def _called(node: ast.AST) -> str | None:
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else None


def _is_plain(node: ast.AST, may_be_text: bool) -> bool:
    if not isinstance(node, _ALLOWED):
        return False
    if isinstance(node, ast.Name):
        return "__" not in node.id
    if isinstance(node, ast.Constant):
        return _is_plain_constant(node.value, may_be_text)
    if isinstance(node, ast.Call) and _called(node) not in _FUNCTIONS:
        return False
    if isinstance(node, ast.keyword):
        return isinstance(node.value, ast.Constant) and node.value.value in _KEYWORD_VALUES
    power = _power(node)
    return power is None or _is_small(*power)


def _is_plain_constant(value: object, may_be_text: bool) -> bool:
    if isinstance(value, str):
        return may_be_text and _TEXT.fullmatch(value) is not None
    return isinstance(value, (bool, int, float))


def _power(node: ast.AST) -> tuple[ast.AST, ast.AST] | None:
    """The base and the exponent, of what can grow beyond all bounds."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Pow, ast.LShift, ast.RShift)):
        return node.left, node.right
    if isinstance(node, ast.Call) and _called(node) in _POWERS:
        return (node.args[0], node.args[1]) if len(node.args) == 2 else (node, node)
    return None


def _is_small(base: ast.AST, exponent: ast.AST) -> bool:
    """A power of a power grows as fast as one with a large exponent, and so does one whose exponent is computed."""
    inner = [*ast.walk(base), *ast.walk(exponent)]
    return all(_power(node) is None for node in inner) and all(_is_small_number(node) for node in ast.walk(exponent))


def _is_small_number(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return abs(node.value) <= _LARGEST_EXPONENT
    if isinstance(node, ast.Call):
        return _called(node) in ("Integer", "Symbol")
    return not isinstance(node, ast.BinOp)
