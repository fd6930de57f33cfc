// The binding of guards on Python: it translates, and does nothing else.
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include "graphs/bindings.h"
#include "graphs/call/backward/gradient_parts.h"
#include "graphs/call/backward/python_in_backward.h"
#include "graphs/guards/python_guards.h"

namespace py = pybind11;

namespace torchreel::graphs {

namespace {

TensorState state_of(const py::handle& tensor) {
  if (!THPVariable_Check(tensor.ptr())) throw py::type_error("A tensor is needed.");
  return TensorState::of(*THPVariable_Unpack(tensor.ptr()).unsafeGetTensorImpl(), tensor.ptr());
}

}  // namespace

void bind_guards(py::module_& module) {
  py::class_<TensorState>(module, "TensorState")
      .def(py::init(&state_of))
      .def_readonly("bits", &TensorState::autograd)
      .def_property_readonly_static("REQUIRES_GRAD", [](py::object) { return +TensorState::kRequiresGrad; })
      .def_property_readonly_static("GRAD_FN", [](py::object) { return +TensorState::kGradFn; })
      .def_property_readonly_static("GRAD", [](py::object) { return +TensorState::kGrad; })
      .def_property_readonly_static("HOOKS", [](py::object) { return +TensorState::kHooks; })
      .def_property_readonly_static("ACCUMULATE_HOOKS", [](py::object) { return +TensorState::kAccumulateHooks; })
      .def_property_readonly_static("RETAINS_GRAD", [](py::object) { return +TensorState::kRetainsGrad; })
      .def_property_readonly_static("FORWARD_GRAD", [](py::object) { return +TensorState::kForwardGrad; })
      .def_property_readonly_static("OWN_ATTRIBUTES", [](py::object) { return +TensorState::kOwnAttributes; })
      .def_property_readonly_static("GEOMETRY", [](py::object) { return +TensorState::kGeometry; });
  py::class_<PythonGuards, std::shared_ptr<PythonGuards>>(module, "PythonGuards")
      .def(py::init<>())
      .def("hold", &PythonGuards::hold)
      .def("hold_but_for_tensors", &PythonGuards::hold_but_for_tensors)
      .def("differences",
           [](PythonGuards& self) {
             py::list all;
             for (const auto& one : self.differences()) all.append(py::make_tuple(one.path, one.was, one.now));
             return all;
           })
      .def("add_owner", &PythonGuards::add_owner)
      .def("add_entries", &PythonGuards::add_entries)
      .def("add_whole", &PythonGuards::add_whole)
      .def("add_length", &PythonGuards::add_length)
      .def("add_type", &PythonGuards::add_type)
      .def("add_class_attributes", &PythonGuards::add_class_attributes)
      .def("add_class", &PythonGuards::add_class)
      .def("add_function", &PythonGuards::add_function)
      .def("add_function_attribute", &PythonGuards::add_function_attribute)
      .def("add_cell", &PythonGuards::add_cell)
      .def("add_weakref", &PythonGuards::add_weakref)
      .def("add_member", &PythonGuards::add_member)
      .def("add_tensor", &PythonGuards::add_tensor)
      .def("add_ask", &PythonGuards::add_ask)
      .def("seal", &PythonGuards::seal)
      .def("paths", &PythonGuards::paths)
      .def_property_readonly("times_held", &PythonGuards::times_held)
      .def_property_readonly("words", &PythonGuards::words);
  module.def("type_version", [](const py::handle& type) { return type_version(type.ptr()); });
  module.def("instance_dict", [](py::object object) -> py::object {
    auto dict = py::reinterpret_steal<py::object>(instance_dict(object.ptr()));
    return dict ? dict : py::none();
  });
  module.def("python_in_backward", &python_in_backward);
  module.def("gradient_parts", &gradient_parts);
  module.def("segments_of", &segments_of);
  py::class_<CutEdges>(module, "CutEdges")
      .def(py::init<const Tensors&, const Tensors&, const Tensors&>())
      .def("exchange", &CutEdges::exchange);
}

}  // namespace torchreel::graphs
