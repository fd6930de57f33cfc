"""What C++ registers with PyTorch."""

from __future__ import annotations

from tests.atlas import pytorch_sources
from tests.atlas.read.cpp.reading import read
from torchreel.atlas.model import Registration
from torchreel.atlas.read.cpp.source import parse


def test_libraries() -> None:
    text = """\
        TORCH_LIBRARY(mine, m) {
          m.def("add(Tensor a, Tensor b) -> Tensor");
          m.def("mul.out", &mul_out);  // m.def("no(int a)")
          m.def(TORCH_SELECTIVE_SCHEMA("other::sub(Tensor a) -> "
                                       "Tensor"));
          m.impl("add", torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(add_cpu)));
          m.def(a_variable);
        }
        TORCH_LIBRARY_FRAGMENT(mine, lib) { lib.def(R"(raw(Tensor a) -> Tensor)"); m.def("not_ours"); }
        TORCH_LIBRARY_IMPL(mine, CUDA, m) {
          m.impl("add", add_cuda);
          m.impl(TORCH_SELECTIVE_NAME("aten::x.y"), TORCH_FN(x));
        }
        TORCH_LIBRARY_IMPL(_, Autograd, m) { m.fallback(fallback); }
        void more(torch::Library& m) { m.def("aten::z(Tensor a) -> Tensor"); }
        void python(py::module& m) { m.def("not_an_operator", &f); }
        """
    assert read(text).registrations == [
        Registration(1, "TORCH_LIBRARY", "mine"),
        Registration(2, "m.def", "mine::add"),
        Registration(3, "m.def", "mine::mul.out"),
        Registration(4, "m.def", "other::sub"),
        Registration(6, "m.impl", "mine::add", "CPU"),
        Registration(9, "TORCH_LIBRARY_FRAGMENT", "mine"),
        Registration(9, "m.def", "mine::raw"),
        Registration(10, "TORCH_LIBRARY_IMPL", "mine", "CUDA"),
        Registration(11, "m.impl", "mine::add", "CUDA"),
        Registration(12, "m.impl", "aten::x.y", "CUDA"),
        Registration(14, "TORCH_LIBRARY_IMPL", "_", "Autograd"),
        Registration(15, "m.def", "aten::z"),
    ]


def test_structured_kernels_and_stubs() -> None:
    text = """\
        TORCH_META_FUNC(add)(const Tensor& self) { }
        TORCH_META_FUNC2(add, Tensor) (const Tensor& self) { }
        TORCH_IMPL_FUNC(add_out)
        (const Tensor& self, const Tensor& result) { add_stub(self); }
        DECLARE_DISPATCH(void(*)(TensorIterator&, const Scalar&), add_stub)
        DEFINE_DISPATCH(add_stub);
        REGISTER_DISPATCH(add_stub, &add_kernel)
        REGISTER_ALL_CPU_DISPATCH(sub_stub, &sub_kernel)
        REGISTER_CUDA_DISPATCH(add_stub, &add_kernel)
        REGISTER_ARCH_DISPATCH(mul_stub, DEFAULT, &mul_kernel)
        REGISTER_NO_AVX512_DISPATCH(mul_stub)
        #define REGISTER_X_DISPATCH(name, fn) REGISTER_DISPATCH(name, fn)
        """
    assert read(text).registrations == [
        Registration(1, "TORCH_META_FUNC", "add"),
        Registration(2, "TORCH_META_FUNC2", "add.Tensor"),
        Registration(3, "TORCH_IMPL_FUNC", "add_out"),
        Registration(5, "DECLARE_DISPATCH", "add_stub"),
        Registration(6, "DEFINE_DISPATCH", "add_stub"),
        Registration(7, "REGISTER_DISPATCH", "add_stub"),
        Registration(8, "REGISTER_ALL_CPU_DISPATCH", "sub_stub", "CPU"),
        Registration(9, "REGISTER_CUDA_DISPATCH", "add_stub", "CUDA"),
        Registration(10, "REGISTER_ARCH_DISPATCH", "mul_stub", "DEFAULT"),
        Registration(11, "REGISTER_NO_AVX512_DISPATCH", "mul_stub", "AVX512"),
    ]


def test_a_real_file() -> None:
    path = pytorch_sources.directory() / "torch/csrc/autograd/TraceTypeManual.cpp"
    found = parse(path.read_text()).registrations
    assert [(one.line, one.what, one.name, one.key) for one in found if one.what.startswith("TORCH")] == [
        *((131, "TORCH_LIBRARY_IMPL", "aten", "Tracer"), (294, "TORCH_LIBRARY_IMPL", "_", "Tracer")),
    ]
    traced = ("resize_", "resize_as_", "detach", "detach_", "copy_", "_backward", "set_data", "data", "is_leaf")
    others = ("output_nr", "_version", "requires_grad_", "retain_grad", "_fw_primal", "_make_dual")
    assert [(one.name, one.key) for one in found if one.what == "m.impl"] == [
        (f"aten::{name}", "Tracer") for name in traced + others
    ]
