// The binding of the decoder, torchreel._decode: it translates, and does nothing else. It needs no torch.
#include <fcntl.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <sys/stat.h>

#include "decode/decoder.h"
#include "decode/pickle/pickle.h"
#include "decode/pickle/stack_table.h"
#include "decode/traces/fields.h"
#include "decode/traces/nesting.h"
#include "decode/traces/times.h"

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

using Int64s = py::array_t<int64_t, py::array::c_style | py::array::forcecast>;
using Flags = py::array_t<bool, py::array::c_style | py::array::forcecast>;

std::vector<int64_t> to_vector(const Int64s& values) { return {values.data(), values.data() + values.size()}; }

// numpy takes the vector over: nothing is copied.
py::array to_numpy(std::vector<int64_t> values) {
  auto* owned = new std::vector<int64_t>(std::move(values));
  py::capsule owner(owned, [](void* vector) { delete static_cast<std::vector<int64_t>*>(vector); });
  return py::array_t<int64_t>(static_cast<py::ssize_t>(owned->size()), owned->data(), owner);
}

py::array to_numpy(std::vector<double> values) {
  auto* owned = new std::vector<double>(std::move(values));
  py::capsule owner(owned, [](void* vector) { delete static_cast<std::vector<double>*>(vector); });
  return py::array_t<double>(static_cast<py::ssize_t>(owned->size()), owned->data(), owner);
}

template <typename T>
py::object to_numpy_or_none(std::optional<std::vector<T>> values) {
  if (!values) return py::none();
  return to_numpy(std::move(*values));
}

Rows rows_of(const py::list& rows) { return {PySequence_Fast_ITEMS(rows.ptr()), rows.size()}; }

py::list chosen_rows(const py::list& rows, const Int64s& places) {
  py::list found(static_cast<size_t>(places.size()));
  for (py::ssize_t i = 0; i < places.size(); i++) {
    PyObject* row = PyList_GetItem(rows.ptr(), places.data()[i]);
    if (row == nullptr) throw py::error_already_set();
    PyList_SET_ITEM(found.ptr(), i, Py_NewRef(row));
  }
  return found;
}

py::array object_codes(const std::vector<std::pair<std::string, py::object>>& given, const py::list& rows,
                       const py::dict& codes, int64_t missing, const py::function& compact) {
  std::vector<JsonObjects::Part> parts;
  for (const auto& [key, value] : given) {
    auto& part = parts.emplace_back();
    part.key = key;
    if (py::isinstance<Field>(value)) {
      part.field = py::cast<Field>(value);
    } else {
      part.value = py::cast<std::string>(value);
    }
  }
  return to_numpy(JsonObjects(std::move(parts), compact.ptr()).codes(rows_of(rows), codes.ptr(), missing));
}

// The texts of all distinct rows from one on.
py::list json_texts(const JsonRows& json, size_t first) {
  py::list found;
  for (size_t i = first; i < json.texts().size(); i++) {
    const auto& texts = json.texts()[i];
    py::tuple row(texts.size());
    for (size_t place = 0; place < texts.size(); place++) row[place] = py::bytes(texts[place]);
    found.append(row);
  }
  return found;
}

// None if a text has a form that is not plain.
py::object nanoseconds(const py::list& texts) {
  std::vector<int64_t> times(texts.size());
  for (size_t i = 0; i < times.size(); i++) {
    Py_buffer bytes;
    if (PyObject_GetBuffer(PyList_GET_ITEM(texts.ptr(), i), &bytes, PyBUF_SIMPLE) != 0) throw py::error_already_set();
    bool plain = plain_nanoseconds({static_cast<const char*>(bytes.buf), static_cast<size_t>(bytes.len)}, &times[i]);
    PyBuffer_Release(&bytes);
    if (!plain) return py::none();
  }
  return to_numpy(std::move(times));
}

std::unique_ptr<Nesting> nesting_of(const Int64s& thread, const Int64s& start, const Int64s& end, const Flags& moment) {
  auto threads = to_vector(thread), starts = to_vector(start), ends = to_vector(end);
  std::vector<uint8_t> moments(moment.data(), moment.data() + moment.size());
  py::gil_scoped_release nogil;
  return std::make_unique<Nesting>(threads, std::move(starts), std::move(ends), std::move(moments));
}

using ChosenCalls = Nesting::Ints (Nesting::*)(const uint8_t*) const;

template <ChosenCalls find>
py::array of_chosen(const Nesting& nesting, const Flags& chosen) {
  if (chosen.size() != nesting.rows()) throw py::value_error("the mask has another length than the rows");
  auto* mask = reinterpret_cast<const uint8_t*>(chosen.data());
  std::vector<int64_t> found;
  {
    py::gil_scoped_release nogil;
    found = (nesting.*find)(mask);
  }
  return to_numpy(std::move(found));
}

py::array sums_of(const Nesting& nesting, const Int64s& rows, const Int64s& values) {
  if (rows.size() != values.size()) throw py::value_error("there is a value for each row, and no other");
  return to_numpy(nesting.sums(rows.data(), values.data(), rows.size()));
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
  module.def("nanoseconds", &nanoseconds, py::arg("texts"));
  py::class_<Field>(module, "Field")
      .def(py::init([](const py::object& descriptor) { return Field(descriptor.ptr()); }), py::arg("descriptor"))
      .def("times",
           [](const Field& field, const py::list& rows) { return to_numpy_or_none(field.times(rows_of(rows))); })
      .def("integers", [](const Field& field, const py::list& rows,
                          int64_t missing) { return to_numpy_or_none(field.integers(rows_of(rows), missing)); })
      .def("numbers",
           [](const Field& field, const py::list& rows) { return to_numpy_or_none(field.numbers(rows_of(rows))); })
      .def("codes", [](const Field& field, const py::list& rows, const py::dict& codes,
                       int64_t missing) { return to_numpy(field.codes(rows_of(rows), codes.ptr(), missing)); })
      .def("any", [](const Field& field, const py::list& rows) { return field.any(rows_of(rows)); })
      .def("joined", [](const Field& field, const py::list& rows) {
        return py::reinterpret_steal<py::bytes>(field.joined(rows_of(rows)));
      });
  module.def("pair_codes", [](const Field& first, const Field& second, const py::list& rows, const py::dict& codes) {
    return to_numpy(Field::pair_codes(first, second, rows_of(rows), codes.ptr()));
  });
  module.def("chosen", &chosen_rows);
  module.def("object_codes", &object_codes);
  py::class_<JsonRows>(module, "JsonRows")
      .def(py::init<>())
      .def("numbers", [](JsonRows& json, const std::vector<Field>& fields,
                         const py::list& rows) { return to_numpy(json.numbers(fields, rows_of(rows))); })
      .def("texts", &json_texts, py::arg("first"));
  py::class_<Nesting>(module, "Nesting")
      .def(py::init(&nesting_of), py::arg("thread"), py::arg("start"), py::arg("end"), py::arg("moment"))
      .def_property_readonly("parent", [](const Nesting& nesting) { return to_numpy(nesting.parent()); })
      .def_property_readonly("depth", [](const Nesting& nesting) { return to_numpy(nesting.depth()); })
      .def("nearest", &of_chosen<&Nesting::nearest>, py::arg("chosen"))
      .def("around", &of_chosen<&Nesting::around>, py::arg("chosen"))
      .def("self_times", [](const Nesting& nesting) { return to_numpy(nesting.self_times()); })
      .def("sums", &sums_of, py::arg("rows"), py::arg("values"));
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
