"""Declarations on one line, as the source has them."""

from __future__ import annotations

import ast
import inspect
import re

import pytest

from tests.atlas.read.python.reading import STANDARD_LIBRARY, files_of, read
from torchreel.atlas.read.python.signatures import cleaned


def signatures(text: str) -> list[str]:
    return [symbol.signature for symbol in read(text).symbols]


@pytest.mark.parametrize(
    ("text", "signature"),
    [
        ("def f(a: int, *, b=1) -> str: return a", "def f(a: int, *, b=1) -> str"),
        ("def f(\n    a,  # the: first\n    b='#  :',\n):  # note: all\n    pass", "def f(a, b='#  :')"),
        ("def f(\n    a: int,\n    b,\n) -> A[\n    str, int\n]:\n    '''doc'''", "def f(a: int, b) -> A[str, int]"),
        ("def f(a=(1,)): ...", "def f(a=(1,))"),
        ("def f(a=(1,),) -> int: ...", "def f(a=(1,)) -> int"),
        ("def f(a=lambda x: {1: x}):\n    @g\n    def h(): ...", "def f(a=lambda x: {1: x})"),
        ("def f(a,\tb = 'x  y'): ...", "def f(a, b = 'x  y')"),
        ("def f(a, \\\n      b): ...", "def f(a, b)"),
        ("async  def  f(): ...", "async def f()"),
        ("class A(B, metaclass=M): ...", "class A(B, metaclass=M)"),
        ("class A:  # note: a class\n    x: int", "class A"),
        ("class A(\n    B,\n    C,\n): ...", "class A(B, C)"),
        ("é = 'ü'  # ö", "é = 'ü'"),
        ("A: int", "A: int"),
        ("A: dict[\n    str, int\n] = {\n    'a':  1,  # one\n}", "A: dict[str, int] = {'a': 1,}"),
        ("A = (\n    1 +\n    2\n)", "A = (1 + 2)"),
        ("A = '''x\n  y'''", r"A = '''x\n  y'''"),
        (f"A = '{'x' * 100}'", f"A = '{'x' * 79}…"),
        (f"A = {'[' + ' ' * 3000}]", "A = […"),
        ("(A := 1)", "A := 1"),
    ],
)  # fmt: skip
def test_signature(text: str, signature: str) -> None:
    assert signatures(text)[0] == signature


def test_of_several_targets_each_has_its_own() -> None:
    assert signatures("A = B = f(x == 1)\nC, D = 1, 2\n") == [
        "A = f(x == 1)",
        "B = f(x == 1)",
        "C, D = 1, 2",
        "C, D = 1, 2",
    ]


def test_docs_are_as_inspect_cleans_them_without_blanks_at_line_ends() -> None:
    docs = ["one", " one \n", "one\n\ttwo\n\t  three\n", "\n\n  a\n    b\n\n", "a\n\n   \n b", "\\n", ""]
    for path in files_of(STANDARD_LIBRARY / "asyncio", 10, seed=1):
        nodes = ast.walk(ast.parse(path.read_text()))
        docs += [ast.get_docstring(node, clean=False) or "" for node in nodes if isinstance(node, ast.FunctionDef)]
    assert sum(map(bool, docs)) > 50
    whole = [re.sub(r" +$", "", inspect.cleandoc(doc), flags=re.MULTILINE) for doc in docs]
    assert [cleaned(doc) for doc in docs] == whole


def test_a_doc_can_be_sent_whatever_its_escapes_say() -> None:
    symbol = read("def f():\n    '''half \\ud800 of one'''\n").symbols[0]
    assert symbol.doc == "half ? of one"
