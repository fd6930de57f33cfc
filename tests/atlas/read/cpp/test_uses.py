"""Names that C++ uses: which are left out, and which the file explains itself."""

from __future__ import annotations

from tests.atlas.read.cpp.reading import names_used, read, uses
from torchreel.atlas.model import COMMENT, DEFINITION, KEYWORD, NUMBER, PREPROCESSOR, STRING


def test_what_is_no_name_of_code() -> None:
    text = '#include <Header.h>\n#pragma once\n// Comment\nconst char* s = "String";\nauto r = R"(Raw)";\n'
    assert names_used(text) == set()


def test_scopes_explain_names() -> None:
    text = """\
        int global;
        namespace n {
        int inner;
        struct A {
          int field;
          int f() { return field + inner + global + outside; }
        };
        int A::f2() { return field; }
        int g() { return field; }
        enum Plain { kPlain };
        enum class Scoped { kScoped };
        int h() { return kPlain + kScoped + Scoped::kScoped + n::inner; }
        }
        int k() { return inner; }
        """
    assert uses(text) == [
        *("6:19 field -> 5", "6:27 inner -> 3", "6:35 global -> 1", "6:44 outside"),
        *("8:4 A -> 4", "8:21 field -> 5", "9:17 field"),
        *("12:17 kPlain -> 10", "12:26 kScoped", "12:36 Scoped -> 11", "12:44 kScoped -> 11"),
        *("12:54 n -> 2", "12:57 inner -> 3", "14:17 inner"),
    ]


def test_local_names_are_left_out() -> None:
    text = """\
        int size;
        template <typename T, class... Ts>
        T f(const T& size, int* pointer = nullptr, Ts&&... rest) {
          auto local = size + size_;
          auto [first, second] = pair();
          for (auto& item : items) { use(item, first, second); }
          try { } catch (const Error& error) { log(error); }
          auto lambda = [copy = local](Q q) { return q + copy; };
          using Alias = int;
          return lambda(pointer, rest...);
        }
        void prototype(int size, int other);
        int g() { return size; }
        """
    assert names_used(text) == {"size_", "pair", "items", "use", "Error", "log", "Q", "size"}
    assert [one for one in uses(text) if " size" in one and "size_" not in one] == ["13:17 size -> 1"]


def test_members_of_something_else_are_not_ours() -> None:
    text = """\
        struct A {
          int name;
          void f(B b, B* p, int name) { b.name(); p->name(); this->name = 1; name; other.size; }
          int size;
        };
        """
    assert [one for one in uses(text) if "name" in one or "size" in one] == [
        *("3:34 name", "3:45 name", "3:59 name -> 2", "3:81 size"),
    ]


def test_overloads_are_not_told_apart() -> None:
    text = """\
        void once(int a);
        void once(int a) {}
        void twice(int a) {}
        void twice(float a) {}
        void other(int a);
        void other(float a) {}
        class Forward;
        void declared();
        int x = (once(1), twice(1), other(1), Forward(), declared(), x);
        """
    assert uses(text) == [
        *("9:9 once -> 2", "9:18 twice", "9:28 other", "9:38 Forward", "9:49 declared -> 8", "9:61 x -> 9"),
    ]


def test_macros() -> None:
    text = """\
        #define ADD(a, b) ((a) + (b) + offset)
        #ifdef ADD
        #define TWICE 1
        #else
        #define TWICE 2
        #endif
        int offset;
        int x = ADD(1, TWICE);
        """
    assert uses(text) == ["1:31 offset", "2:7 ADD -> 1", "8:8 ADD -> 1", "8:15 TWICE"]


def test_a_class_is_not_its_constructor() -> None:
    text = "struct A {\n  A();\n  A* next;\n};\nA::A() {}\nA make() { return A(); }\n"
    assert uses(text) == ["3:2 A -> 1", "5:0 A -> 1", "6:0 A -> 1", "6:18 A -> 1"]


def test_tokens() -> None:
    text = '#include <x.h>\nint f(T a) { return g(a, 1, "s"); } // c\n'
    parsed = read(text)
    kinds = {COMMENT: "comment", DEFINITION: "definition", KEYWORD: "keyword", NUMBER: "number", STRING: "string"}
    kinds[PREPROCESSOR] = "preprocessor"
    assert [(text[start:end], kinds.get(kind) or parsed.uses[kind].name) for start, end, kind in parsed.tokens] == [
        *(("#include", "preprocessor"), ("<x.h>", "string"), ("int", "keyword"), ("f", "definition"), ("T", "T")),
        *(("return", "keyword"), ("g", "g"), ("1", "number"), ('"s"', "string"), ("// c", "comment")),
    ]
