// The binding of the follower: it translates, and does nothing else.
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include "graphs/bindings.h"
#include "graphs/guards/follower.h"
#include "graphs/guards/frames.h"

namespace py = pybind11;

namespace torchreel::graphs {

namespace {

PyFrameObject* frame_of(const py::handle& object) {
  if (!PyFrame_Check(object.ptr())) throw py::type_error("A frame is needed.");
  return reinterpret_cast<PyFrameObject*>(object.ptr());
}

py::object or_null(PyObject* found) {
  return py::reinterpret_borrow<py::object>(found == nullptr ? null_mark() : found);
}

// Of attribute lookup of this type: C's generic one (1), that and then Python's __getattr__ (2), or another one (0).
int lookup_kind(PyTypeObject* type) {
  getattrofunc get = type->tp_getattro;
  if (get == PyObject_GenericGetAttr || get == PyModule_Type.tp_getattro || get == PyType_Type.tp_getattro) return 1;
  static PyObject* name = PyUnicode_InternFromString("__getattribute__");
  PyObject* found = _PyType_Lookup(type, name);
  for (PyTypeObject* known : {&PyBaseObject_Type, &PyModule_Type, &PyType_Type}) {
    if (found == _PyType_Lookup(known, name)) return 2;
  }
  return 0;
}

PyTypeObject* type_of(const py::handle& type) {
  if (!PyType_Check(type.ptr())) throw py::type_error("A type is needed.");
  return reinterpret_cast<PyTypeObject*>(type.ptr());
}

}  // namespace

void bind_follower(py::module_& module) {
  module.attr("NULL") = py::handle(null_mark());
  py::class_<Follower>(module, "Follower")
      .def(py::init<py::object, const std::vector<int>&, const py::iterable&, std::string>())
      .def_static("is_impossible", &Follower::is_impossible)
      .def("run", &Follower::run)
      .def("stop", &Follower::stop)
      .def("close", &Follower::close)
      .def("make", [](Follower& self, const py::handle& object) { self.objects().make(object.ptr()); })
      .def("is_fresh", [](Follower& self, const py::handle& object) { return self.objects().is_fresh(object.ptr()); })
      .def("give", [](Follower& self, const py::handle& object) { self.objects().give(object.ptr()); })
      .def("is_given", [](Follower& self, const py::handle& object) { return self.objects().is_given(object.ptr()); })
      .def("let_go_of_recent", [](Follower& self) { self.objects().let_go_of_recent(); })
      .def("pass_over", &Follower::pass_over)
      .def("expect", &Follower::expect)
      .def_property_readonly("generators", [](Follower& self) { return self.objects().generators(); })
      .def("adopt_from", [](Follower& self, const py::handle& frame) { self.adopt_from(frame.ptr()); })
      .def("take_names", &Follower::take_names)
      .def_readwrite("memo", &Follower::memo)
      .def_property_readonly("events", &Follower::events)
      .def_property_readonly("asked", &Follower::asked);
  module.def("peek", [](const py::handle& frame, int back) {
    return or_null(peek_at(as_mirror(frame_of(frame))->frame, back));
  });
  module.def("function_of",
             [](const py::handle& frame) { return or_null(as_mirror(frame_of(frame))->frame->function); });
  module.def("local", [](const py::handle& frame, int index) {
    return or_null(as_mirror(frame_of(frame))->frame->localsplus[index]);
  });
  module.def("type_lookup", [](const py::handle& type, const py::handle& name) {
    return or_null(_PyType_Lookup(type_of(type), name.ptr()));
  });
  module.def("lookup_kind", [](const py::handle& type) { return lookup_kind(type_of(type)); });
  module.def("is_of_python", [](const py::handle& type) { return is_of_python(type_of(type)); });
  // Not by `tensor.grad`: hooks on attributes of tensors must not see it.
  module.def("gradient_of", [](const py::handle& tensor) {
    const c10::TensorImpl* found = THPVariable_Unpack(tensor.ptr()).unsafeGetTensorImpl();
    return py::reinterpret_steal<py::object>(THPVariable_Wrap(found->grad()));
  });
  module.def("type_flags", [](const py::handle& type) { return type_of(type)->tp_flags; });
}

}  // namespace torchreel::graphs
