"""Lines of the preprocessor: what they say, and the code that they hide."""

from __future__ import annotations

from tests.atlas.read.cpp.reading import read, symbols
from torchreel.atlas.model import Import


def test_includes() -> None:
    text = '#include <ATen/ATen.h>\n  #  include "x.h" // why\n// #include <no.h>\n#include MACRO\n#import <y.h>\n'
    assert read(text).imports == [Import(1, "ATen/ATen.h"), Import(2, "x.h"), Import(5, "y.h")]


def test_macros_of_both_branches() -> None:
    text = """\
        #ifdef X
        #define ONE(a, b) \\
          a + b
        #define TWO 2  // the second
        #else
        #define ONE(a, b)
        #endif
        #undef ONE
        """
    found = read(text).symbols
    assert [(one.name, one.line, one.end_line, one.signature, one.doc) for one in found] == [
        ("ONE", 2, 3, "#define ONE(a, b)", ""),
        ("TWO", 4, 4, "#define TWO 2", "the second"),
        ("ONE", 6, 6, "#define ONE(a, b)", ""),
    ]


def test_what_a_macro_stands_for_declares_nothing() -> None:
    assert symbols("#define F(x) \\\n  void x() {} \\\n  int x##_;\nF(y)\n") == ["1 macro F"]


def test_classes_in_both_branches_of_a_conditional() -> None:
    text = """\
        #if A
        struct S { int a; };
        #elif B
        struct S { int b; };
        #else
        struct S;
        #endif
        """
    assert symbols(text) == ["2 struct S", "2 field S::a", "4 struct S", "4 field S::b", "6 struct S?"]


def test_pieces_of_a_declaration_count_once() -> None:
    text = """\
        #ifdef A
        class S : public X {
        #else
        class S : public Y {
        #endif
          int a;
        };
        void f(
        #ifdef A
            int x) {
        #else
            float x) {
        #endif
        }
        int after;
        """
    assert symbols(text) == ["2 class S", "6 field S::a", "8 function f", "15 variable after"]


def test_disabled_code_is_no_code() -> None:
    assert symbols("#if 0\nint a; {\n#else\nint b;\n#endif\nint c;\n") == ["4 variable b", "6 variable c"]


def test_conditionals_within_a_list() -> None:
    text = "enum E {\n  A,\n#ifdef X\n  B,\n#else\n  C,\n#endif\n  D\n};\n"
    assert symbols(text) == [
        "1 enum E",
        *("2 enumerator E::A", "4 enumerator E::B", "6 enumerator E::C", "8 enumerator E::D"),
    ]
