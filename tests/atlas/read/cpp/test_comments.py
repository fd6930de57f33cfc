"""Comments: which one says something about what."""

from __future__ import annotations

import pytest

from tests.atlas.read.cpp.reading import read
from torchreel.atlas.read.cpp.comments import plain


@pytest.mark.parametrize(
    ("comment", "expected"),
    [
        ("// a", "a"),
        ("///   a ", "  a"),
        ("//!< a", "a"),
        ("/* a */", "a"),
        ("/** a\n * b\n *\n *   c\n **/", "a\nb\n\n  c"),
        ("/*\n a\n b*/", " a\n b"),
        ("/**/", ""),
        ("/* 2 * 3 */", "2 * 3"),
        ("// a\r", "a"),
    ],
)
def test_marks(comment: str, expected: str) -> None:
    assert plain(comment) == expected


def test_what_a_comment_is_about() -> None:
    text = """\
        // Not about f.

        // About f,
        // in two lines.
        template <class T>
        TORCH_API void f();
        int a;  // about a
        int b;  //!< about b
        /* about c */
        int c; int d;
        // NOLINTNEXTLINE(x)
        int e;
        enum E {
          A,  // about A
          /// about B
          B
        };
        struct S {  // not about S
          int x;
        };  // nor this
        void g() {  // nor about g
        }
        """
    assert {one.name: one.doc for one in read(text).symbols} == {
        **{"f": "About f,\nin two lines.", "a": "about a", "b": "about b", "c": "about c", "d": "", "e": ""},
        **{"E": "", "A": "about A", "B": "about B", "S": "", "x": "", "g": ""},
    }


def test_the_first_comment_that_is_no_licence() -> None:
    text = """\
        /* Copyright (c) Someone
         * All rights reserved. */
        // SPDX-License-Identifier: MIT
        #include <x>  // for y
        void f() {
          // in a body
        }
        // What this file
        // is about.
        class A;
        // Another one.
        """
    assert read(text).doc == "What this file\nis about."
    assert read("int a;  // behind\n").doc == ""


def test_prose_is_all_of_them() -> None:
    assert read('// a\nint x; /* b */ const char* s = "// c";\n').prose == "a\nb"
