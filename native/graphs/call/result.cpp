#include "graphs/call/result.h"

namespace py = pybind11;

namespace torchreel::graphs {

Result Result::of(const py::handle& shape, const py::handle& leaf) {
  Result result;
  if (py::isinstance(shape, leaf)) {
    result.kind = kTensor;
    result.index = shape.attr("index").cast<size_t>();
  } else if (PyTuple_CheckExact(shape.ptr()) || PyList_CheckExact(shape.ptr())) {
    result.kind = PyTuple_CheckExact(shape.ptr()) ? kTuple : kList;
    for (const auto& part : shape) result.parts.push_back(of(part, leaf));
  } else if (PyDict_CheckExact(shape.ptr())) {
    result.kind = kDict;
    auto dict = py::reinterpret_borrow<py::dict>(shape);
    py::tuple keys(dict.size());
    size_t next = 0;
    for (const auto& [key, part] : dict) {
      keys[next++] = key;
      result.parts.push_back(of(part, leaf));
    }
    result.value = keys;
  } else {
    result.value = py::reinterpret_borrow<py::object>(shape);
  }
  return result;
}

py::object Result::build(const std::vector<py::object>& tensors) const {
  switch (kind) {
    case kTensor: return tensors[index];
    case kConstant: return value;
    case kTuple: {
      py::tuple made(parts.size());
      for (size_t i = 0; i < parts.size(); i++) made[i] = parts[i].build(tensors);
      return made;
    }
    case kList: {
      py::list made;
      for (const auto& part : parts) made.append(part.build(tensors));
      return made;
    }
    case kDict: {
      py::dict made;
      for (size_t i = 0; i < parts.size(); i++) made[value[py::int_(i)]] = parts[i].build(tensors);
      return made;
    }
  }
  return py::none();
}

}  // namespace torchreel::graphs
