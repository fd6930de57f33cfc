// The binding of the decoder, torchreel._decode: it translates, and does nothing else. It needs no torch.
#include <fcntl.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <sys/stat.h>

#include "decode/decoder.h"
#include "decode/pickle/pickle.h"
#include "decode/pickle/stack_table.h"

namespace py = pybind11;
using namespace torchreel;

namespace {

void release_schema(PyObject* capsule) {
  auto* schema = static_cast<ArrowSchema*>(PyCapsule_GetPointer(capsule, "arrow_schema"));
  if (schema->release != nullptr) schema->release(schema);
  delete schema;
}

void release_array(PyObject* capsule) {
  auto* array = static_cast<ArrowArray*>(PyCapsule_GetPointer(capsule, "arrow_array"));
  if (array->release != nullptr) array->release(array);
  delete array;
}

py::tuple to_arrow(Batch& batch) {
  auto* schema = new ArrowSchema;
  batch.to_schema(schema);
  auto* array = new ArrowArray;
  batch.to_array(array);
  auto schema_capsule = py::reinterpret_steal<py::object>(PyCapsule_New(schema, "arrow_schema", &release_schema));
  auto array_capsule = py::reinterpret_steal<py::object>(PyCapsule_New(array, "arrow_array", &release_array));
  return py::make_tuple(schema_capsule, array_capsule);
}

py::dict to_dict(Batches batches) {
  py::dict result;
  for (auto& [name, batch] : batches) {
    batch->drop_nulls();
    result[name.c_str()] = py::cast(std::move(batch));
  }
  return result;
}

// A table may have several batches.
py::list to_list(Batches batches) {
  py::list result;
  for (auto& [name, batch] : batches) {
    batch->drop_nulls();
    result.append(py::make_tuple(name, std::move(batch)));
  }
  return result;
}

PickleBytes pickle_bytes(const py::object& source) {
  if (!py::isinstance<py::int_>(source)) {
    std::string_view data = py::cast<std::string_view>(py::cast<py::bytes>(source));
    return {data.data(), data.size()};
  }
  int file = py::cast<int>(source);
  struct stat status{};
  if (fstat(file, &status) != 0) throw PickleError("the file cannot be read");
  return {file, static_cast<uint64_t>(status.st_size)};
}

template <typename T>
py::bytes bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

py::object stack_numbers(StackTable& table, const py::list& lists) {
  std::vector<int32_t> numbers(lists.size());
  for (size_t i = 0; i < numbers.size(); i++) {
    if (!table.number(PyList_GET_ITEM(lists.ptr(), static_cast<Py_ssize_t>(i)), &numbers[i])) return py::int_(i);
  }
  return bytes_of(numbers);
}

}  // namespace

PYBIND11_MODULE(_decode, module) {
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      std::rethrow_exception(thrown);
    } catch (const PythonError&) {  // the error is set already
    }
  });
  py::register_exception<SpoolError>(module, "SpoolError");
  auto pickle_error = py::register_exception<PickleError>(module, "PickleError");
  py::register_exception<TruncatedPickleError>(module, "TruncatedPickleError", pickle_error);
  py::register_exception<RefusedPickleError>(module, "RefusedPickleError", pickle_error);
  module.def(
      "read_pickle",
      [](const py::object& source) { return py::reinterpret_steal<py::object>(read_pickle(pickle_bytes(source))); },
      py::arg("source"));
  py::class_<StackTable>(module, "StackTable")
      .def(py::init<>())
      .def("numbers", &stack_numbers, py::arg("lists"))
      .def_property_readonly("frames",
                             [](const StackTable& table) { return py::reinterpret_borrow<py::list>(table.frames()); })
      .def_property_readonly("ends", [](const StackTable& table) { return bytes_of(table.ends()); })
      .def_property_readonly("content", [](const StackTable& table) { return bytes_of(table.content()); });
  py::class_<Batch>(module, "Batch")
      .def(
          "__arrow_c_array__", [](Batch& batch, const py::object&) { return to_arrow(batch); },
          py::arg("requested_schema") = py::none());
  py::class_<Decoder>(module, "Spool")
      .def(py::init([](const std::string& directory) {
        py::gil_scoped_release nogil;
        return std::make_unique<Decoder>(directory);
      }))
      .def("restrict_to", &Decoder::restrict_to, py::arg("windows"), py::arg("steps"))
      .def(py::init([](int definitions, int events, uint64_t definitions_size, uint64_t events_size,
                       const std::string& head) {
             py::gil_scoped_release nogil;
             return std::make_unique<Decoder>(SpoolFiles{Descriptor(fcntl(definitions, F_DUPFD_CLOEXEC, 0)),
                                                         Descriptor(fcntl(events, F_DUPFD_CLOEXEC, 0)),
                                                         definitions_size, events_size, head});
           }),
           py::arg("definitions"), py::arg("events"), py::arg("definitions_size"), py::arg("events_size"),
           py::arg("head"))
      .def("next",
           [](Decoder& decoder) -> py::object {
             Batches batches;
             bool more;
             {
               py::gil_scoped_release nogil;
               more = decoder.next(batches);
             }
             return more ? py::object(to_dict(std::move(batches))) : py::none();
           })
      .def("next_settled",
           [](Decoder& decoder) {
             Batches batches;
             {
               py::gil_scoped_release nogil;
               decoder.next_settled(batches);
             }
             return to_list(std::move(batches));
           })
      .def("grow", &Decoder::grow, py::arg("definitions_size"), py::arg("events_size"))
      .def("finish",
           [](Decoder& decoder) {
             Batches batches;
             decoder.finish(batches);
             return to_dict(std::move(batches));
           })
      .def("inputs", &Decoder::inputs)
      .def_property_readonly("process", [](const Decoder& decoder) { return py::bytes(decoder.process()); })
      .def_property_readonly("node", [](const Decoder& decoder) { return decoder.header().node; })
      .def_property_readonly("closed", [](const Decoder& decoder) { return decoder.header().closed == 1; })
      .def_property_readonly("lost_events", [](const Decoder& decoder) { return decoder.header().lost_events; })
      .def_property_readonly("start_ns", &Decoder::start_ns)
      .def_property_readonly("end_ns", &Decoder::end_ns);
}
