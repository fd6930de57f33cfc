"""What names mean by the scopes of a Python file."""

from __future__ import annotations

import ast
import symtable
from pathlib import Path

import pytest

from tests.atlas.read.python.reading import STANDARD_LIBRARY, TORCH, files_of, read, title, used_in, uses
from tests.sample import sampled
from torchreel.atlas.model import Use
from torchreel.atlas.read.python.source import parse


def test_every_name_with_its_place_and_meaning() -> None:
    assert uses("""\
        import torch.nn.functional as F
        import torch

        class Base:
            def step(self): ...

        class Net(Base, torch.nn.Module):
            rate: float = 0.1

            def forward(self, x: torch.Tensor) -> Base:
                y = F.relu(x).sum(dim=1)
                self.step()
                self.hidden = y.shape
                return helper(self.hidden, self.rate, self.unknown, True, key=None)

        def helper(*args): return len(args)
        """) == [
        "7:10 Base -> 4",
        "7:16 torch = torch",
        "7:22 nn = torch.nn",
        "7:25 Module = torch.nn.Module",
        "8:10 float",
        "10:25 torch = torch",
        "10:31 Tensor = torch.Tensor",
        "10:42 Base -> 4",
        "11:12 F = torch.nn.functional",
        "11:14 relu = torch.nn.functional.relu",
        "11:22 sum",
        "12:13 step -> 5",
        "13:24 shape",
        "14:15 helper -> 16",
        "14:27 hidden -> 13",
        "14:40 rate -> 8",
        "14:51 unknown",
        "16:26 len",
    ]


def test_uses_with_one_meaning_share_a_slot() -> None:
    parsed = read("import os\nos.path\ndef f(os): return os.path\nos.path\n")
    assert parsed.uses == [Use("path", path="os.path"), Use("os", path="os"), Use("path")]
    assert parsed.slots == [1, 0, 2, 1, 0]


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        pytest.param("x = 1\ndef f(x): return x\n", 2, [], id="parameter"),
        pytest.param("x = 1\ndef f(*x, **y): return x, y\n", 2, [], id="starred parameters"),
        pytest.param("x = 1\ndef f(a=x): return a\n", 2, ["x -> 1"], id="a default is evaluated outside"),
        pytest.param("x = 1\ndef f(x=x): return x\n", 2, ["x -> 1"], id="a default of its own name"),
        pytest.param("x = 1\ny = lambda x, z=x: x + z\n", 2, ["x -> 1"], id="lambda"),
        pytest.param("x = 1\ndef f():\n    print(x)\n    x = 2\n", 3, ["print"], id="bound below in a function"),
        pytest.param("def f():\n    return x\nx = 1\n", 2, ["x -> 3"], id="defined below in the module"),
        pytest.param("x = 1\ndef f():\n    global x\n    x = 2\n    return x\n", 5, ["x -> 1"], id="global"),
        pytest.param(
            "def x(): ...\ndef f():\n    def x(): ...\n    def g():\n        nonlocal x\n        return x\n", 6,
            ["x -> 3"], id="nonlocal",
        ),
        pytest.param("x = 1\nclass A:\n    x = 2\n    y = x\n", 4, ["x -> 3"], id="class body"),
        pytest.param("x = 1\nclass A:\n    x = 2\n    def f(self): return x\n", 4, ["x -> 1"], id="method"),
        pytest.param("x = 1\nclass A:\n    x = 2\n    y = lambda: x\n", 4, ["x -> 1"], id="lambda in a class"),
        pytest.param(
            "x = 1\nclass A:\n    x = 2\n    y = [x for z in x if z]\n", 4, ["x -> 1", "x -> 3"],
            id="only the first iterable of a comprehension is of the class",
        ),
        pytest.param("x = 1\n[x for x in y]\nx\n", 2, ["y"], id="comprehension"),
        pytest.param("x = 1\n[x for x in y]\nx\n", 3, ["x -> 1"], id="behind a comprehension"),
        pytest.param("x = 1\n{x: z for z in y for x in z if x}\n", 2, ["y"], id="comprehension of two"),
        pytest.param("[(x := y) for y in z]\nx\n", 2, ["x -> 1"], id="walrus leaves a comprehension"),
        pytest.param("def f():\n    [(x := y) for y in z]\n    return x\nx = 1\n", 3, [], id="walrus in a function"),
        pytest.param("x = 1\ndef f():\n    del x\n    x\n", 4, [], id="del binds"),
        pytest.param("x = 1\ndel x\nx\n", 2, [], id="del is no use"),
        pytest.param("for x in y: x\n", 1, ["y"], id="loop variable of a module"),
        pytest.param("x = 1\ndef f():\n    for x in y: x\n", 3, ["y"], id="loop variable"),
        pytest.param("x = 1\ndef f():\n    with y as x: x\n", 3, ["y"], id="with"),
        pytest.param("x = 1\ndef f():\n    try: ...\n    except E as x: x\n", 4, ["E"], id="except"),
        pytest.param("x = 1\ndef f():\n    import x\n    x.y\n", 4, ["x = x", "y = x.y"], id="import in a function"),
        pytest.param("x += 1\nx = 1\n", 1, ["x -> 2"], id="augmented assignment uses its target"),
        pytest.param("def f():\n    def g(): ...\n    return g\n", 3, ["g -> 2"], id="nested function"),
        pytest.param("def f(a): return a.b.c\n", 1, ["b", "c"], id="attributes of a local variable"),
        pytest.param("f().a.b(c)[d].e\n", 1, ["f", "a", "b", "c", "d", "e"], id="attributes of an expression"),
        pytest.param("x: 'Unknown'\ny: int\n", 1, [], id="annotation in a string"),
        pytest.param("def f(a: int) -> str: b: float = 1\n", 1, ["int", "str", "float"], id="annotations"),
        pytest.param("@a.b(c)\nclass D(E, f=G): ...\n", 1, ["a", "b", "c"], id="decorator"),
        pytest.param("@a.b(c)\nclass D(E, f=G): ...\n", 2, ["E", "G"], id="bases"),
        pytest.param("f(a=1, **b)\n", 1, ["f", "b"], id="keywords of a call are no uses"),
        pytest.param("x = True, False, None, ..., __debug__\n", 1, ["__debug__"], id="constants"),
        pytest.param("from m import *\nname\n", 2, ["name"], id="star import"),
        pytest.param("import a.b.c\na.b.c.d\n", 2, ["a = a", "b = a.b", "c = a.b.c", "d = a.b.c.d"], id="dotted"),
        pytest.param("from ..a import b\nb.c\n", 2, ["b = ..a.b", "c = ..a.b.c"], id="relative import"),
        pytest.param("from . import a as b\nb.c\n", 2, ["b = .a", "c = .a.c"], id="relative import of a module"),
        pytest.param("import a\na.b = 1\n", 2, ["a = a", "b = a.b"], id="an attribute that is assigned to"),
        pytest.param("import a\n(a\n .b)\n", 3, ["b = a.b"], id="chain over lines"),
        pytest.param("import a\ndef f(): return [a.b for a in c]\n", 2, ["b", "c"], id="import shadowed"),
    ],
)  # fmt: skip
def test_scoping(text: str, line: int, expected: list[str]) -> None:
    assert used_in(text, line) == expected


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        pytest.param("try:\n    import a\nexcept E:\n    a = None\na.b\n", 5, ["a = a", "b = a.b"], id="variable"),
        pytest.param(
            "try:\n    from m import f\nexcept ImportError:\n    def f(): ...\nf()\n", 5, ["f -> 4"], id="function"
        ),
        pytest.param(
            "try:\n    import a as x\nexcept ImportError:\n    import b as x\nx\n", 5, ["x = a"], id="the first import"
        ),
        pytest.param("if c:\n    def f(): ...\nelse:\n    def f(): ...\nf()\n", 5, ["f -> 2"], id="the first function"),
        pytest.param("f = None\ndef f(): ...\nf()\n", 3, ["f -> 2"], id="a function before a variable"),
        pytest.param(
            "@overload\ndef f(a: int): ...\n@overload\ndef f(a: str): ...\ndef f(a): ...\nf(1)\n", 6, ["f -> 5"],
            id="what is overloaded",
        ),
    ],
)  # fmt: skip
def test_names_with_several_definitions(text: str, line: int, expected: list[str]) -> None:
    assert used_in(text, line) == expected


def test_members_of_classes() -> None:
    text = """\
        import elsewhere
        class Root:
            field = 1
            def method(self): ...
        class Middle(elsewhere.Other, Root): ...
        class Leaf(Middle):
            class Inner:
                deep = 1
            def use(me):
                me.field, me.method(), me.attribute, me.elsewhere
                def nested(): return me.attribute
                lambda: me.attribute
                [me.attribute for _ in me.field]
            def late(self): self.attribute = 1
            @classmethod
            def build(cls): return cls.field
            @staticmethod
            def static(other): return other.field
        Leaf.field, Leaf.Inner.deep, Leaf().field
        """
    assert used_in(text, 10) == ["field -> 3", "method -> 4", "attribute -> 14", "elsewhere"]
    assert used_in(text, 11) == used_in(text, 12) == ["attribute -> 14"]
    assert used_in(text, 13) == ["attribute -> 14", "field -> 3"]
    assert used_in(text, 16) == ["field -> 3"]
    assert used_in(text, 18) == ["field"]
    assert used_in(text, 19) == [
        "Leaf -> 6",
        "field -> 3",
        "Leaf -> 6",
        "Inner -> 7",
        "deep -> 8",
        "Leaf -> 6",
        "field",
    ]


def test_classes_that_derive_from_themselves() -> None:
    text = "class A(B):\n    def f(self): self.x\nclass B(A): ...\nclass C(C.D):\n    def f(self): self.D\n"
    assert used_in(text, 2) == ["x"]
    assert used_in(text, 5) == ["D"]


def test_match_statements() -> None:
    text = """\
        import shapes
        point = 1
        def f(subject):
            match subject:
                case shapes.Point(x=0, y=bound) | [bound, *rest]: bound, rest
                case {"key": value, **others} if value > point: others
                case shapes.ORIGIN as named: named
                case point: point
        """
    assert used_in(text, 4) == []
    assert used_in(text, 5) == ["shapes = shapes", "Point = shapes.Point"]
    assert used_in(text, 6) == []
    assert used_in(text, 7) == ["shapes = shapes", "ORIGIN = shapes.ORIGIN"]
    assert used_in(text, 8) == []


def test_names_in_f_strings() -> None:
    text = """\
        import os
        x = 1
        def f(local):
            return f"{os.path!r:>{x}} {local} {f'{x}'} {{x}}" f'''
              {x + len(os.sep)}
            ''' "os"
        """
    assert used_in(text, 4) == ["os = os", "path = os.path", "x -> 2", "x -> 2"]
    assert used_in(text, 5) == ["x -> 2", "len", "os = os", "sep = os.sep"]
    assert used_in(text, 6) == []


def test_columns_are_in_characters() -> None:
    assert uses('é = "ü𝛼"; b = é.ñ; f"ü{é}"\n') == ["1:14 é -> 1", "1:16 ñ", "1:23 é -> 1"]


FILES = [*files_of(TORCH, 25, seed=11), *files_of(STANDARD_LIBRARY, 25, seed=12)]


@pytest.mark.parametrize("path", sampled(FILES, 3, title), ids=title)
def test_names_in_functions_are_what_symtable_says(path: Path) -> None:
    """Python's own table of scopes says which names of a function are local and which are the module's."""
    text = path.read_text("utf-8", errors="replace")
    try:
        tree, table = ast.parse(text), symtable.symtable(text, path.name, "exec")
    except SyntaxError:
        pytest.skip("Python itself refuses this file")
    parsed = parse(text)
    places = zip(parsed.lines, parsed.columns, strict=True)
    found = {place: parsed.uses[slot] for place, slot in zip(places, parsed.slots, strict=True)}
    functions = {(one.get_name(), one.get_lineno()): one for one in functions_of(table)}
    lines = text.split("\n")
    module = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    for function in functions.values():
        module |= {one.get_name() for one in function.get_symbols() if one.is_declared_global() and one.is_assigned()}
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef) or (node.name, node.lineno) not in functions:
            continue
        for name in names_in(node):
            column = len(lines[name.lineno - 1].encode()[: name.col_offset].decode())
            use = found.get((name.lineno, column))
            symbol = functions[node.name, node.lineno].lookup(name.id)
            if symbol.is_local():
                assert (use is None) == (not symbol.is_imported() and not symbol.is_namespace()), (path, ast.dump(name))
            elif symbol.is_global():
                # Without a use, it is a variable of a loop or the like in the module.
                assert (name.id in module) == (use != Use(name.id)), (path, name.lineno, name.id)


def functions_of(table: symtable.SymbolTable) -> list[symtable.SymbolTable]:
    """Those whose name and line nobody else has."""
    found, waiting = [], [table]
    while waiting:
        one = waiting.pop()
        waiting += one.get_children()
        if one.get_type() == "function":
            found.append(one)
    places = [(one.get_name(), one.get_lineno()) for one in found]
    return [one for one, place in zip(found, places, strict=True) if places.count(place) == 1]


def names_in(function: ast.FunctionDef) -> list[ast.Name]:
    """Names that are loaded in a function itself, not in what is nested in it, in an f-string or in an annotation."""
    scopes = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp)
    found: list[ast.Name] = []
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            found.append(node)
        if isinstance(node, ast.AnnAssign):
            waiting += [node.target, *([node.value] if node.value else [])]
        elif not isinstance(node, (*scopes, ast.GeneratorExp, ast.JoinedStr)):
            waiting += ast.iter_child_nodes(node)
    return found
