"""What `ast` refuses is taken out, and no more than that."""

from __future__ import annotations

from textwrap import dedent

import pytest

from torchreel.atlas.read.python.repair import MOST_REPAIRS, parse, repair
from torchreel.atlas.read.python.text import PythonText


def taken_out(text: str) -> tuple[list[str], list[int]] | None:
    """The texts of the blocks that were taken out, and the lines of errors; None if nothing was left."""
    source = PythonText(text)
    with pytest.raises((SyntaxError, ValueError, RecursionError, MemoryError)) as refused:
        parse(source.text)
    repaired = repair(source, refused.value)
    if repaired.tree is None:
        return None
    return [source.piece(block.start, block.end) for block in repaired.blocks], repaired.errors


def test_a_line() -> None:
    assert taken_out("x = 1\ny = = 2\nz = 3\n") == (["y = = 2"], [2])


def test_a_short_line() -> None:
    assert taken_out("x = 1\n$\nz = 3\n") == (["$"], [2])


def test_a_function_of_newer_syntax_with_its_decorators() -> None:
    text = dedent("""\
        import os

        class A:
            @a
            @b(1)
            def f[T](self, x: T) -> T:
                '''Doc.
                '''
                # comment

                return x

            def g(self): ...
        """)
    block = text[text.index("@a") : text.index("return x") + len("return x")]
    lines, errors = taken_out(text) or ([], [])
    assert [one.rstrip() for one in lines] == [block]
    assert errors == [6]


def test_a_line_that_does_not_help_takes_the_function_with_it() -> None:
    text = "def f():\n    x = (1,\n         2 2,\n        )\n\ndef g(): ...\n"
    assert taken_out(text) == ([text[: text.index("\ndef g")]], [3, 3])


def test_several_errors() -> None:
    assert taken_out("a +\ndef f(:\n    pass\nb = 1\nc c\n") == (["a +", "def f(:\n    pass", "c c"], [1, 2, 5])


def test_letters_of_many_bytes() -> None:
    assert taken_out("ä = 'ö'\nü = = 'é'\nß = 1\n") == (["ü = = 'é'"], [2])


def test_more_errors_than_are_repaired() -> None:
    assert taken_out("a b\n" * MOST_REPAIRS) == (["a b"] * MOST_REPAIRS, [*range(1, MOST_REPAIRS + 1)])
    assert taken_out("a b\n" * (MOST_REPAIRS + 1)) is None


def test_errors_without_a_line() -> None:
    assert taken_out("x = " + "-" * 100_000 + "1\n") is None
