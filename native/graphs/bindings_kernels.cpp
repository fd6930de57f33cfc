#include "graphs/bindings_kernels.h"

#include <ATen/ScalarOps.h>
#include <pybind11/stl.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/MemoryFormat.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <unordered_map>

#include "graphs/kernels/layers/boxed.h"
#include "graphs/kernels/layers/out.h"
#include "graphs/kernels/layers/prepare.h"
#include "torch/below_autograd.h"

namespace py = pybind11;

namespace torchreel::graphs {

namespace {

const tape::OpInfo& op_of(const std::string& name) {
  auto dot = name.find('.', name.find("::"));
  auto op = c10::Dispatcher::singleton().findSchema(
      {name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)});
  if (!op.has_value()) throw std::invalid_argument("There is no op " + name + " in this process.");
  return tape::info_of(*op);
}

// Values of Python as a schema wants them.
class Reader {
 public:
  c10::IValue read(const py::handle& value, const c10::TypePtr& type) {
    if (value.is_none()) return {};
    if (type->kind() == c10::TypeKind::OptionalType)
      return read(value, type->castRaw<c10::OptionalType>()->getElementType());
    if (type->kind() == c10::TypeKind::ListType) return list(value, type->castRaw<c10::ListType>()->getElementType());
    if (THPVariable_Check(value.ptr())) return bare(value.cast<at::Tensor>());
    if (type->kind() == c10::TypeKind::TensorType) return number(scalar(value));
    if (THPDtype_Check(value.ptr())) return reinterpret_cast<THPDtype*>(value.ptr())->scalar_type;
    if (THPLayout_Check(value.ptr())) return reinterpret_cast<THPLayout*>(value.ptr())->layout;
    if (THPMemoryFormat_Check(value.ptr())) return reinterpret_cast<THPMemoryFormat*>(value.ptr())->memory_format;
    if (THPDevice_Check(value.ptr())) return value.cast<c10::Device>();
    if (THPGenerator_Check(value.ptr())) return value.cast<at::Generator>();
    if (py::isinstance<py::str>(value)) return value.cast<std::string>();
    if (py::isinstance<py::bool_>(value)) return value.cast<bool>();
    if (type->kind() == c10::TypeKind::FloatType) return value.cast<double>();
    return scalar(value);
  }

  // The same memory without autograd's keys; one object for each that was given.
  at::Tensor bare(const at::Tensor& tensor) {
    auto& made = bare_[tensor.unsafeGetTensorImpl()];
    if (made.defined()) return made;
    auto* impl = tensor.unsafeGetTensorImpl();
    if (tensor.layout() != c10::kStrided || !tensor.has_storage()) return made = tensor;
    made = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(tensor.storage()),
                                                    impl->key_set() - kAbove, tensor.dtype());
    made.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
    if (impl->is_wrapped_number()) made.unsafeGetTensorImpl()->set_wrapped_number(true);
    return made;
  }

 private:
  static c10::Scalar scalar(const py::handle& value) {
    if (py::isinstance<py::bool_>(value)) return value.cast<bool>();
    if (py::isinstance<py::int_>(value)) return value.cast<int64_t>();
    if (!PyComplex_Check(value.ptr())) return value.cast<double>();
    return c10::complex<double>(PyComplex_RealAsDouble(value.ptr()), PyComplex_ImagAsDouble(value.ptr()));
  }

  static at::Tensor number(const c10::Scalar& value) {
    auto tensor = c10::scalar_to_tensor(value);
    tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
    return tensor;
  }

  c10::IValue list(const py::handle& values, const c10::TypePtr& type) {
    c10::impl::GenericList made(type);
    if (!py::isinstance<py::sequence>(values)) {
      made.push_back(read(values, type));  // an int for int[1]
    } else {
      for (const auto& value : values) made.push_back(read(value, type));
    }
    return made;
  }

  std::unordered_map<const void*, at::Tensor> bare_;
};

KernelCall call_of(const std::string& name, const py::sequence& arguments, const py::sequence& results,
                   const std::vector<size_t>& fixed) {
  KernelCall call;
  call.op = &op_of(name);
  const auto& schema = call.op->handle.schema();
  if (arguments.size() != schema.arguments().size()) {
    throw std::invalid_argument("The op " + name + " takes " + std::to_string(schema.arguments().size()) +
                                " arguments, defaults included, and " + std::to_string(arguments.size()) +
                                " were given.");
  }
  Reader reader;
  for (size_t i = 0; i < arguments.size(); i++) {
    auto value = reader.read(arguments[i], schema.arguments()[i].type());
    call.fixed.push_back(value.isTensor() && value.toTensor().unsafeGetTensorImpl()->is_wrapped_number());
    call.arguments.push_back(std::move(value));
  }
  for (size_t index : fixed) call.fixed.at(index) = true;
  for (const auto& result : results) {
    call.results.push_back(result.is_none() ? at::Tensor() : reader.bare(result.cast<at::Tensor>()));
  }
  return call;
}

std::unique_ptr<Kernel> kernel_of(const std::string& name, const py::sequence& arguments, const py::sequence& results,
                                  const std::optional<std::string>& layer, const std::vector<size_t>& fixed) {
  KernelCall call = call_of(name, arguments, results, fixed);
  BelowAutograd below_autograd;
  return layer.has_value() ? prepare_in(*layer, call) : prepare(call);
}

void run(Kernel& kernel) {
  py::gil_scoped_release nogil;
  BelowAutograd below_autograd;
  kernel.run();
}

std::vector<std::string> layers_of(const std::string& name) {
  op_of(name);
  std::vector<std::string> layers;
  if (handwritten_kernels().count(name) != 0) layers.emplace_back("handwritten");
  if (structured_kernels().count(name) != 0) layers.emplace_back("structured");
  if (out_overloads().count(name) != 0) layers.emplace_back("out");
  layers.emplace_back("boxed");
  return layers;
}

}  // namespace

void bind_kernels(py::module_& module) {
  py::class_<Kernel>(module, "Kernel").def("run", &run).def_property_readonly("layer", &Kernel::layer);
  module.def("kernel", &kernel_of, py::arg("name"), py::arg("arguments"), py::arg("results"),
             py::arg("layer") = py::none(), py::arg("fixed") = std::vector<size_t>());
  module.def("layers", &layers_of, py::arg("name"));
}

}  // namespace torchreel::graphs
