"""Macros that no parser knows, where they would mislead one."""

from __future__ import annotations

import pytest

from tests.atlas.read.cpp.reading import read, symbols


@pytest.mark.parametrize(
    "head",
    [
        "class TORCH_API Foo {",
        "class TORCH_API Foo : public Bar {",
        "class FOO Foo final {",
        "struct C10_EXPORT __attribute__((packed)) Foo {",
        "struct __align__(8) Foo {",
        "struct PROTOBUF_ALIGNAS(8) Foo {",
        "class Foo PROTOBUF_FINAL : public Bar {",
        "template <class T> class TORCH_API Foo<T*> {",
        "class /* why */ TORCH_API // this\nFoo {",
        "struct [[nodiscard]] Foo {",
    ],
)
def test_before_the_name_of_a_class(head: str) -> None:
    parsed = read(f"{head} int a; }};")
    assert [(one.scope, one.name) for one in parsed.symbols] == [("", "Foo"), ("Foo", "a")]
    assert parsed.errors == []


@pytest.mark.parametrize(
    "declaration",
    [
        "TORCH_API Tensor f(int a);",
        "C10_HOST_DEVICE inline C10_ALWAYS_INLINE int f(int a);",
        "__global__ void __launch_bounds__(256) f(int a);",
        "C10_LAUNCH_BOUNDS_2(256, 4) __global__ void f(int a);",
        "static __device__ __forceinline__ float f(int a);",
        "SLEEF_IMPORT SLEEF_CONST Sleef_double2 f(double);",
        "MAYBE_VIRTUAL const Storage& f() const;",
        'C10_DEPRECATED_MESSAGE("no") TORCH_API void f();',
        'template <class T>\nNO_SANITIZE("x")\nT f(T a);',
        "extern C10_API int f();",
        "[[noreturn]] TORCH_API void f();",
        "void f() REQUIRES(mutex);",
        "float* C10_RESTRICT f(const float* RESTRICT a);",
    ],
)
def test_before_a_declaration(declaration: str) -> None:
    parsed = read(declaration)
    assert [(one.kind, one.name, one.declaration) for one in parsed.symbols] == [("function", "f", True)]
    assert parsed.errors == []


def test_a_signature_has_them() -> None:
    found = read("class TORCH_API A {\n  TORCH_API C10_NOINLINE void f();\n};").symbols
    assert [one.signature for one in found] == ["class TORCH_API A", "TORCH_API C10_NOINLINE void f()"]


def test_names_like_macros_that_are_none() -> None:
    text = """\
        enum E { RUNTIME_API, DRIVER_API };
        struct RNN { RNN(int a); RNN(const RNN&) = default; ~RNN(); };
        HANDLE open(int a);
        SOME_TYPE value;
        __m256 vector;
        const int MAX_SIZE = LIMIT_API + 1;
        class SGD : public Optimizer {};
        """
    assert symbols(text) == [
        *("1 enum E", "1 enumerator E::RUNTIME_API", "1 enumerator E::DRIVER_API"),
        *("2 struct RNN", "2 method RNN::RNN?", "2 method RNN::RNN", "2 method RNN::~RNN?"),
        *("3 function open?", "4 variable value", "5 variable vector", "6 variable MAX_SIZE", "7 class SGD"),
    ]


def test_calls_without_a_semicolon() -> None:
    text = """\
        C10_DEFINE_bool(flag, true, "a { b")
        C10_DECLARE_REGISTRY(Registry, Base, const std::string&);
        FMT_BEGIN_NAMESPACE
        class A {
          DISALLOW_COPY(A)
          TORCH_ARG(std::vector<int>, sizes) = {1, 2};
          int a;
          FORWARD_HAS_DEFAULT_ARGS({1, AnyValue(std::optional<int>())})
        };
        FMT_END_NAMESPACE
        int f() {
          TORCH_CHECK(
              x,
              "y")
          auto z = g();
          return z;
        }
        TORCH_LIBRARY(aten, m) { m.def("f"); }
        int after;
        """
    assert symbols(text) == ["4 class A", "7 field A::a", "11 function f", "19 variable after"]


def test_cuda() -> None:
    text = """\
        template <typename T>
        __global__ void kernel(T* out, int n) { extern __shared__ int memory[]; }
        void run(int n) {
          kernel<float><<<dim3(n / 2, 1), 256, 0, stream>>>(out, n);
        }
        int after;
        """
    parsed = read(text)
    assert symbols(text) == ["2 function kernel", "3 function run", "6 variable after"]
    assert parsed.errors == []
