// The binding of single kernels: it translates, and does nothing else.
#include <pybind11/stl.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/MemoryFormat.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <unordered_map>

#include "graphs/bindings.h"
#include "graphs/kernels/layers/boxed.h"
#include "graphs/kernels/layers/prepare.h"
#include "tape/replay/numbers.h"
#include "tape/steps/scalars.h"
#include "torch/below_autograd.h"

namespace py = pybind11;

namespace torchreel::graphs {

namespace {

// Values of Python as a schema wants them.
class Reader {
 public:
  c10::IValue read(const py::handle& value, const c10::TypePtr& type) {
    if (value.is_none()) return {};
    if (type->kind() == c10::TypeKind::OptionalType)
      return read(value, type->castRaw<c10::OptionalType>()->getElementType());
    if (type->kind() == c10::TypeKind::ListType) return list(value, type->castRaw<c10::ListType>()->getElementType());
    if (THPVariable_Check(value.ptr())) return bare(value.cast<at::Tensor>());
    if (type->kind() == c10::TypeKind::TensorType) return tape::wrapped_number(tape::scalar_of(value));
    if (THPDtype_Check(value.ptr())) return reinterpret_cast<THPDtype*>(value.ptr())->scalar_type;
    if (THPLayout_Check(value.ptr())) return reinterpret_cast<THPLayout*>(value.ptr())->layout;
    if (THPMemoryFormat_Check(value.ptr())) return reinterpret_cast<THPMemoryFormat*>(value.ptr())->memory_format;
    if (THPDevice_Check(value.ptr())) return value.cast<c10::Device>();
    if (THPGenerator_Check(value.ptr())) return value.cast<at::Generator>();
    if (py::isinstance<py::str>(value)) return value.cast<std::string>();
    if (py::isinstance<py::bool_>(value)) return value.cast<bool>();
    if (type->kind() == c10::TypeKind::FloatType) return value.cast<double>();
    return tape::scalar_of(value);
  }

  at::Tensor bare(const at::Tensor& tensor) {
    auto& made = bare_[tensor.unsafeGetTensorImpl()];
    if (!made.defined()) made = without_autograd(tensor);
    return made;
  }

 private:
  c10::IValue list(const py::handle& values, const c10::TypePtr& type) {
    c10::impl::GenericList made(type);
    if (!py::isinstance<py::sequence>(values)) {
      made.push_back(read(values, type));  // an int for int[1]
    } else {
      for (const auto& value : values) made.push_back(read(value, type));
    }
    return made;
  }

  std::unordered_map<const void*, at::Tensor> bare_;  // one for each tensor that was given
};

KernelCall call_of(const std::string& name, const py::sequence& arguments, const py::sequence& results,
                   const std::vector<size_t>& fixed) {
  KernelCall call;
  call.op = &tape::op_named(name);
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

}  // namespace

void bind_kernels(py::module_& module) {
  py::class_<Kernel>(module, "Kernel").def("run", &run).def_property_readonly("layer", &Kernel::layer);
  module.def("kernel", &kernel_of, py::arg("name"), py::arg("arguments"), py::arg("results"),
             py::arg("layer") = py::none(), py::arg("fixed") = std::vector<size_t>());
  module.def("layers", [](const std::string& name) { return layers_of(tape::op_named(name)); }, py::arg("name"));
}

}  // namespace torchreel::graphs
