"""Symbols and imports of Python files: each one, with its place, kind, scope, signature and doc."""

from __future__ import annotations

import pytest

from tests.atlas.read.python.reading import read, symbols
from torchreel.atlas.model import Import, Symbol


def test_a_whole_file() -> None:
    parsed = read('''\
        """What it is for."""

        import os.path as where
        from . import near

        LIMIT: int = 3
        """How many."""


        class Box(Base, metaclass=Meta):
            """Holds things.

            Many of them.
            """

            size = 1

            def __init__(self, things: list[int], *, deep=False) -> None:
                self.things = things

            @property
            def first(self) -> int:
                "The first."
                return self.things[0]


        async def run(): ...
        ''')
    assert parsed.doc == "What it is for."
    assert parsed.symbols == [
        Symbol("LIMIT", "", "variable", 6, 6, "LIMIT: int = 3", "How many.", column=0),
        Symbol(
            "Box", "", "class", 10, 24, "class Box(Base, metaclass=Meta)", "Holds things.\n\nMany of them.", column=6
        ),
        Symbol("size", "Box", "field", 16, 16, "size = 1", column=4),
        Symbol(
            "__init__",
            "Box",
            "method",
            18,
            19,
            "def __init__(self, things: list[int], *, deep=False) -> None",
            column=8,
        ),
        Symbol("things", "Box", "attribute", 19, 19, "self.things = things", column=13),
        Symbol("first", "Box", "method", 22, 24, "def first(self) -> int", "The first.", column=8),
        Symbol("run", "", "function", 27, 27, "async def run()", column=10),
    ]
    assert parsed.imports == [Import(3, "os.path", False, "where"), Import(4, ".near")]
    assert parsed.errors == []


def test_functions_and_classes_wherever_they_are() -> None:
    assert symbols("""\
        def outer():
            def inner():
                class Deep:
                    def method(self): ...
            class Local: ...
        if condition:
            def choice(): ...
        else:
            def choice(): ...
        try:
            class Maybe:
                if condition:
                    def chosen(self): ...
        except Exception: ...
        with context:
            async def within(): ...
        match subject:
            case 1:
                def matched(): ...
        """) == [
        "1:4 function outer",
        "2:8 function outer.inner",
        "3:14 class outer.inner.Deep",
        "4:16 method outer.inner.Deep.method",
        "5:10 class outer.Local",
        "7:8 function choice",
        "9:8 function choice",
        "11:10 class Maybe",
        "13:16 method Maybe.chosen",
        "16:14 function within",
        "19:12 function matched",
    ]


def test_a_definition_is_where_its_name_is() -> None:
    assert symbols("""\
        @decorator(
            over,
            many="lines",
        )
        @another
        def decorated(): ...

        def \\
            continued(): ...

        class  Wide : ...
        """) == ["6:4 function decorated", "9:4 function continued", "11:7 class Wide"]


def test_properties_and_overloads_are_a_symbol_each() -> None:
    assert symbols("""\
        class Box:
            @property
            def size(self): ...
            @size.setter
            def size(self, value): ...
            @overload
            def get(self, key: int): ...
            @overload
            def get(self, key: str): ...
            def get(self, key): ...
        """) == [
        "1:6 class Box",
        "3:8 method Box.size",
        "5:8 method Box.size",
        "7:8 method Box.get",
        "9:8 method Box.get",
        "10:8 method Box.get",
    ]


def test_variables_of_modules_and_classes() -> None:
    assert symbols("""\
        one = two = 1
        three, (four, *five) = [six, seven] = value
        typed: int
        also: int = 1
        if (walrus := 1):
            in_if = 1
        else:
            in_if = 2
        for loop in range(3):
            in_loop = loop
        with open(path) as file:
            in_with = file
        [inner for inner in values if (leaked := inner)]
        name.attribute = name[0] = 1
        one += 1
        del one
        class Box:
            field, other = 1, 2
            bare: int
        def function():
            local = 1
            global declared
            declared = local
            declared = 2
        """) == [
        "1:0 variable one",
        "1:6 variable two",
        "2:0 variable three",
        "2:8 variable four",
        "2:15 variable five",
        "2:24 variable six",
        "2:29 variable seven",
        "3:0 variable typed",
        "4:0 variable also",
        "5:4 variable walrus",
        "6:4 variable in_if",
        "8:4 variable in_if",
        "10:4 variable in_loop",
        "12:4 variable in_with",
        "13:31 variable leaked",
        "17:6 class Box",
        "18:4 field Box.field",
        "18:11 field Box.other",
        "19:4 field Box.bare",
        "20:4 function function",
        "23:4 variable declared",
    ]


def test_what_a_function_declares_global_is_the_modules() -> None:
    assert symbols("""\
        def make():
            global Made, known
            known = 2
            class Made:
                field = 1
                def method(self): ...
        known = 1
        """) == [
        "1:4 function make",
        "4:10 class Made",
        "5:8 field Made.field",
        "6:12 method Made.method",
        "7:0 variable known",
    ]


def test_attributes_are_first_assignments_by_an_instance() -> None:
    assert symbols("""\
        class Box:
            field = 1
            def __init__(this, other):
                this.first, this.second = other.third = 1, 2
                this.field = 3
                this.first = 4
                this.typed: int = 5
                other.no = 6
                for this.loop in other: ...
                with other as this.context: ...
                this.counted += 1
                this.deep.no = 7
                def nested():
                    this.nested = 8
                    def shadowed(this): this.no = 9
            @staticmethod
            def static(no): no.no = 1
            @classmethod
            def build(cls): cls.built = 1
            def rebound(self):
                self = other()
                self.no = 1
            def method(self): self.method = 1
        """) == [
        "1:6 class Box",
        "2:4 field Box.field",
        "3:8 method Box.__init__",
        "4:13 attribute Box.first",
        "4:25 attribute Box.second",
        "7:13 attribute Box.typed",
        "9:17 attribute Box.loop",
        "10:27 attribute Box.context",
        "13:12 function Box.__init__.nested",
        "14:17 attribute Box.nested",
        "15:16 function Box.__init__.nested.shadowed",
        "17:8 method Box.static",
        "19:8 method Box.build",
        "19:24 attribute Box.built",
        "20:8 method Box.rebound",
        "23:8 method Box.method",
    ]


def test_enumerators_and_aliases() -> None:
    assert symbols("""\
        class Color(str, enum.Enum):
            _ignore_ = ["x"]
            RED = 1
            note: str
            def method(self): ...
        class Access(IntFlag): READ, WRITE = 1, 2
        class Plain: NO = 1
        Name: TypeAlias = "Plain"
        Other: typing.TypeAlias = Plain
        """) == [
        "1:6 class Color",
        "2:4 field Color._ignore_",
        "3:4 enumerator Color.RED",
        "4:4 field Color.note",
        "5:8 method Color.method",
        "6:6 class Access",
        "6:23 enumerator Access.READ",
        "6:29 enumerator Access.WRITE",
        "7:6 class Plain",
        "7:13 field Plain.NO",
        "8:0 alias Name",
        "9:0 alias Other",
    ]


def test_imports_have_a_row_for_each_name() -> None:
    parsed = read("""\
        from __future__ import annotations
        import os, sys as system
        import torch.nn.functional
        import torch.nn.functional as functional
        import torch.nn.functional as F
        from torch import (
            nn,
            optim as o,
        )
        from .. import up
        from ...far.away import thing as other
        from star import *
        from . import *
        try:
            import ujson as json
        except ImportError:
            import json
        def function():
            from .late import name
        """)
    assert parsed.imports == [
        Import(1, "__future__.annotations"),
        Import(2, "os"),
        Import(2, "sys", False, "system"),
        Import(3, "torch.nn.functional", False, "torch.nn.functional"),
        Import(4, "torch.nn.functional"),
        Import(5, "torch.nn.functional", False, "F"),
        Import(7, "torch.nn"),
        Import(8, "torch.optim", False, "o"),
        Import(10, "..up"),
        Import(11, "...far.away.thing", False, "other"),
        Import(12, "star", True),
        Import(13, ".", True),
        Import(15, "ujson", False, "json"),
        Import(17, "json"),
        Import(19, ".late.name"),
    ]


@pytest.mark.parametrize(
    "text",
    ['exec("def made(): ...")\nglobals()["made"] = 1', '"""\ndef quoted(): ...\n"""', "# def commented(): ...\n"],
)
def test_what_looks_like_code_is_none(text: str) -> None:
    assert symbols(text) == []
