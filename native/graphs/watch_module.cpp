// The binding of the watch: it translates, and does nothing else.
#include <pybind11/stl.h>

#include "watch.h"
#include "watch_calls.h"

namespace py = pybind11;

namespace torchreel::graphs {

void bind_watch(py::module_& module) {
  py::class_<Watch, std::shared_ptr<Watch>>(module, "Watch")
      .def(py::init<>())
      .def("same", &Watch::same)
      .def("differences",
           [](Watch& self) {
             py::list all;
             for (const auto& one : self.differences()) all.append(py::make_tuple(one.path, one.was, one.now));
             return all;
           })
      .def("clear", &Watch::clear)
      .def("add_owner", &Watch::add_owner)
      .def("add_names", &Watch::add_names)
      .def("add_instance", &Watch::add_instance)
      .def("add_class", &Watch::add_class)
      .def("add_function", &Watch::add_function)
      .def("add_cell", &Watch::add_cell)
      .def("add_member", &Watch::add_member)
      .def("paths", &Watch::paths)
      .def_property_readonly("too_long", &Watch::too_long)
      .def_property_readonly("times_same", &Watch::times_same)
      .def_property_readonly("words", &Watch::words);
  py::class_<WatchCalls>(module, "WatchCalls")
      .def(py::init<std::vector<std::string>, std::string, py::object, py::object>())
      .def("start", &WatchCalls::start)
      .def("stop", &WatchCalls::stop)
      .def("functions", &WatchCalls::functions)
      .def("modules", &WatchCalls::modules)
      .def("born", &WatchCalls::born);
  module.def("instance_dict", [](py::object object) -> py::object {
    auto dict = py::reinterpret_steal<py::object>(instance_dict(object.ptr()));
    return dict ? dict : py::none();
  });
}

}  // namespace torchreel::graphs
