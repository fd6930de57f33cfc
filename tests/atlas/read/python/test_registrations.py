"""Operators that Python files register, as far as they name them in so many words."""

from __future__ import annotations

from tests.atlas.read.python.reading import TORCH, read
from torchreel.atlas.model import Registration


def test_libraries() -> None:
    assert read("""\
        import torch
        from torch.library import Library, impl
        lib = Library("mine", "DEF")
        meta: object = 1
        kernels = torch.library.Library("mine", "IMPL", "Meta")
        lib.define("first(Tensor x) -> Tensor")
        lib.define("second.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)", tags=())
        lib.impl("first", function, "CPU")
        kernels.impl("first", function)
        @impl(lib, "second.out", "CUDA")
        def kernel(x): ...
        torch.library.impl("other::third", ("cpu", "cuda"), function)
        torch.library.define("other::third", "(Tensor x) -> Tensor")
        def later():
            lib.impl("aten::add", function, dispatch_key="XPU")
            with torch.library._scoped_library("scoped", "FRAGMENT") as lib2:
                lib2.define("fourth() -> ()")
        """).registrations == [
        Registration(3, "torch.library.Library", "mine"),
        Registration(5, "torch.library.Library", "mine", "Meta"),
        Registration(6, "Library.define", "mine::first"),
        Registration(7, "Library.define", "mine::second.out"),
        Registration(8, "Library.impl", "mine::first", "CPU"),
        Registration(9, "Library.impl", "mine::first", "Meta"),
        Registration(10, "torch.library.impl", "mine::second.out", "CUDA"),
        Registration(12, "torch.library.impl", "other::third", "cpu, cuda"),
        Registration(13, "torch.library.define", "other::third"),
        Registration(15, "Library.impl", "aten::add", "XPU"),
        Registration(16, "torch.library._scoped_library", "scoped"),
        Registration(17, "Library.define", "scoped::fourth"),
    ]


def test_custom_operators() -> None:
    assert read("""\
        import torch
        from torch.library import custom_op, register_fake as fake

        @custom_op("mine::sin", mutates_args=(), device_types="cpu")
        def sin(x): ...

        @sin.register_fake
        def _(x): ...

        @sin.register_kernel("cuda")
        def _(x): ...

        sin.register_autograd(backward)

        @fake("mine::cos")
        def _(x): ...

        torch.library.register_autocast("mine::cos", "cuda", torch.float16)
        torch.library.register_kernel(torch.ops.mine.tan.default, "cpu", function)
        """).registrations == [
        Registration(4, "torch.library.custom_op", "mine::sin", "cpu"),
        Registration(7, "CustomOpDef.register_fake", "mine::sin"),
        Registration(10, "CustomOpDef.register_kernel", "mine::sin", "cuda"),
        Registration(13, "CustomOpDef.register_autograd", "mine::sin"),
        Registration(15, "torch.library.register_fake", "mine::cos"),
        Registration(18, "torch.library.register_autocast", "mine::cos", "cuda"),
        Registration(19, "torch.library.register_kernel", "mine::tan", "cpu"),
    ]


def test_decompositions() -> None:
    assert read("""\
        import torch
        from torch._decomp import register_decomposition
        aten = torch.ops.aten

        @register_decomposition(aten.elu_backward)
        def elu_backward(): ...

        @register_decomposition([aten.arange.default, aten.arange.out, torch.ops.prims.iota])
        def arange(): ...
        """).registrations == [
        Registration(5, "register_decomposition", "aten::elu_backward"),
        Registration(8, "register_decomposition", "aten::arange"),
        Registration(8, "register_decomposition", "aten::arange.out"),
        Registration(8, "register_decomposition", "prims::iota"),
    ]


def test_what_is_not_named_is_not_listed() -> None:
    parsed = read("""\
        import torch
        lib = torch.library.Library(name, "DEF")
        lib.define(schema)
        lib.impl(operator, function, "CPU")
        torch.library.custom_op(f"{name}::op")
        module.define("x = 1")
        thing.impl("name")
        register_decomposition(unknown.op)
        @box.setter
        def box(): ...
        """)
    assert parsed.registrations == []


def test_a_library_that_nobody_names_leaves_the_namespace_open() -> None:
    assert read("""\
        from elsewhere import lib
        from torch.library import impl
        @impl(lib, "op", "CPU")
        def kernel(): ...
        lib.define("op(Tensor x) -> Tensor")
        lib.impl("op", kernel, "CUDA")
        """).registrations == [
        Registration(3, "torch.library.impl", "op", "CPU"),
        Registration(5, "Library.define", "op"),
        Registration(6, "Library.impl", "op", "CUDA"),
    ]


def test_a_variable_that_is_two_libraries_has_no_namespace() -> None:
    found = read("""\
        from torch.library import Library
        lib = Library("one", "DEF")
        lib = Library("two", "DEF")
        lib.define("op(Tensor x) -> Tensor")
        """).registrations
    assert found[-1] == Registration(4, "Library.define", "op")


def test_decompositions_of_torch_itself() -> None:
    text = (TORCH / "_decomp" / "decompositions.py").read_text()
    found = [one for one in read(text).registrations if one.what == "register_decomposition"]
    assert len({one.line for one in found}) > 0.9 * text.count("\n@register_decomposition(")
    assert Registration(found[0].line, "register_decomposition", found[0].name) == found[0]
    assert {one.name.partition("::")[0] for one in found} == {"aten"}
