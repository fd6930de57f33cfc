"""Signatures, lines and columns of the symbols of C++."""

from __future__ import annotations

from tests.atlas.read.cpp.reading import read


def test_signatures_are_one_line_without_the_body() -> None:
    text = """\
        template <
            class T>
        std::vector<T> f(
            const T& a,  // why
            int b /* what */ = 3) const
        {
          return {};
        }
        struct A : public B { A(int x) : x_(x) {} virtual void g() = 0; ~A() = default; int x_ = 1; };
        enum class E : int { One = 1, Two };
        static const std::map<int, int> table = {
            {1, 2},
            {3, 4}};
        constexpr int kSize = 3;
        using V = std::vector<int>;
        namespace n::m { }
        """
    assert [one.signature for one in read(text).symbols] == [
        "template <class T> std::vector<T> f(const T& a, int b = 3) const",
        *("struct A : public B", "A(int x)", "virtual void g() = 0", "~A() = default", "int x_ = 1"),
        *("enum class E : int", "One = 1", "Two", "static const std::map<int, int> table", "constexpr int kSize = 3"),
        *("using V = std::vector<int>", "namespace n::m"),
    ]


def test_lines_are_those_of_names() -> None:
    text = """\
        template <class T>
        const std::unique_ptr<T>&
          get(
            int a) {
          return x;
        }
        class
          A
        {
          ~A();
        };
        """
    assert [(one.name, one.line, one.column, one.end_line) for one in read(text).symbols] == [
        *(("get", 3, 2, 6), ("A", 8, 2, 11), ("~A", 10, 2, 10)),
    ]


def test_places_are_characters() -> None:
    parsed = read("/* größe → */ int größe; // é\nvoid f(T größe);\n")
    assert [(one.name, one.line, one.column) for one in parsed.symbols] == [("größe", 1, 18), ("f", 2, 5)]
    assert [(parsed.uses[slot].name, column) for slot, column in zip(parsed.slots, parsed.columns, strict=True)] == [
        ("T", 7)
    ]


def test_a_long_signature_is_cut() -> None:
    (found,) = read(f"void f({'int a, ' * 200}int b);").symbols
    assert len(found.signature) == 500
    assert found.signature.startswith("void f(int a, int a") and found.signature.endswith(" ...")
