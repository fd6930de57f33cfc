"""Texts that are no program: headings, keys, paths and names of code."""

from __future__ import annotations

from textwrap import dedent

import pytest

from tests.atlas import pytorch_sources
from torchreel.atlas.model import COMMENT, DEFINITION, Parsed
from torchreel.atlas.read.plain_source import parse


def read(text: str, language: str) -> Parsed:
    return parse(dedent(text), language)


def symbols(parsed: Parsed) -> list[tuple[int, str, str]]:
    return [(one.line, one.kind, one.name) for one in parsed.symbols]


def names(parsed: Parsed) -> list[str]:
    return [use.name for use in parsed.uses]


def paths(parsed: Parsed) -> list[tuple[int, str]]:
    return [(one.line, one.target) for one in parsed.imports]


def test_markdown() -> None:
    parsed = read(
        """\
        # The Title #

        See [the guide](guide.md#start) and `src/a/b.py`, not https://x.org/y.html or and/or.
        Call `torch.nn.functional.relu`, `at::Tensor`, `my_function()` or ThreadPool.

        ```python
        # no heading
        ```
        ## C#
        """,
        "markdown",
    )
    assert symbols(parsed) == [(1, "heading", "The Title"), (9, "heading", "C#")]
    assert parsed.doc.startswith("See [the guide](guide.md#start)")
    assert paths(parsed) == [(3, "src/a/b.py"), (3, "guide.md")]
    assert {"at", "Tensor", "my_function", "ThreadPool"} <= set(names(parsed))
    assert not {"The", "See", "or", "Call"} & set(names(parsed))


def test_restructured_text() -> None:
    parsed = read(
        """\
        .. _label:

        Title
        =====

        A paragraph.

        Section
        ^^^^^^^
        Not a heading
        ---
        """,
        "rst",
    )
    assert symbols(parsed) == [(3, "heading", "Title"), (8, "heading", "Section")]


def test_yaml() -> None:
    parsed = read(
        """\
        # What this is.
        - func: add.Tensor(Tensor self, Tensor other) -> Tensor
          dispatch:
            CPU: add_cpu
        - func: sub.out(Tensor self)
        top: 1
        """,
        "yaml",
    )
    assert symbols(parsed) == [(2, "key", "add.Tensor"), (5, "key", "sub.out"), (6, "key", "top")]
    assert parsed.doc == "What this is."
    assert parsed.tokens[:2] == [(0, 15, COMMENT), (24, 34, DEFINITION)]


def test_cmake() -> None:
    parsed = read(
        """\
        # Finds a thing.
        function(find_thing NAME)
        endfunction()
          MACRO( my_macro )
        include(cmake/public/utils.cmake)
        """,
        "cmake",
    )
    assert symbols(parsed) == [(2, "function", "find_thing"), (4, "macro", "my_macro")]
    assert paths(parsed) == [(5, "cmake/public/utils.cmake")]


def test_toml() -> None:
    assert symbols(read("[project]\nname = 1\n[[tool.mypy.overrides]]\n", "toml")) == [
        *((1, "key", "project"), (3, "key", "tool.mypy.overrides")),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see a/b.py.", ["a/b.py"]),
        ("(../a/b-c.h)", ["../a/b-c.h"]),
        ("/abs/x.so and ./rel/y.txt", ["/abs/x.so", "./rel/y.txt"]),
        ("and/or 1/2 a//b.py .x/ a/.hidden a/b", []),
        ("[x](y.md) [z](https://a/b.md)", ["y.md"]),
        ("a/b.py a/b.py", ["a/b.py"]),
    ],
)
def test_paths(text: str, expected: list[str]) -> None:
    assert [target for _, target in paths(parse(text, "markdown"))] == expected


def test_a_real_text() -> None:
    path = pytorch_sources.directory() / "docs/source/torch.compiler_cudagraph_trees.rst"
    text = path.read_text()
    parsed = parse(text, "rst")
    assert symbols(parsed)[0] == (1, "heading", "CUDAGraph Trees")
    assert {"make_graphed_callables", "CachingAllocator"} <= set(names(parsed))
    lines = text.split("\n")
    for line, column, slot in zip(parsed.lines, parsed.columns, parsed.slots, strict=True):
        assert lines[line - 1].startswith(parsed.uses[slot].name, column)
    ends = [0, *(end for _, end, _ in parsed.tokens)]
    assert all(ends[i] <= start < end for i, (start, end, _) in enumerate(parsed.tokens))


# Each would take minutes where the time grows with more than the length of the text.
SLOW = [
    "a",
    "a/",
    "a.",
    ".",
    "# ",
    "#",
    "[",
    "](a",
    "=",
    "a::",
    "function( ",
    "[[a",
    "- func: ",
    "\ud800",
    "\0",
    "é_É ",
]


@pytest.mark.parametrize(
    "language", ["markdown", "rst", "yaml", "cmake", "toml", "text", "json", "shell", "typescript"]
)
def test_hostile_texts(language: str) -> None:
    for piece in SLOW:
        line = piece * (3900 // len(piece))
        parse(f"{line}\n" * 20 + piece * 100_000, language)
