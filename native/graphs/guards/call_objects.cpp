#include "graphs/guards/call_objects.h"

#include <torch/csrc/autograd/python_variable.h>

#include <utility>

namespace py = pybind11;

namespace torchreel::graphs {

namespace {

// Whether nobody but the follower has it, in Python or in C++.
bool is_left(PyObject* object) {
  if (Py_REFCNT(object) != 1) return false;
  return !THPVariable_Check(object) || THPVariable_Unpack(object).use_count() <= 1;
}

template <class Objects>
void release(Objects& objects) {
  auto held = std::exchange(objects, {});
  for (PyObject* object : held) Py_DECREF(object);
}

// Whether a generator has not ended, and does something when it is dropped.
bool has_end_to_run(PyObject* generator) {
  auto* code = reinterpret_cast<PyCodeObject*>(reinterpret_cast<PyGenObject*>(generator)->gi_code);
  auto frame = py::reinterpret_steal<py::object>(PyObject_GetAttrString(generator, "gi_frame"));
  return frame && !frame.is_none() && PyBytes_GET_SIZE(code->co_exceptiontable) > 0;
}

}  // namespace

CallObjects::CallObjects(const py::iterable& plain) {
  for (const auto& type : plain) plain_.insert(reinterpret_cast<PyTypeObject*>(type.ptr()));
}

void CallObjects::close() {
  let_go();
  release(given_);
}

void CallObjects::give(PyObject* object) {
  if (given_.insert(object).second) Py_INCREF(object);
}

void CallObjects::make(PyObject* object) {
  if (object == nullptr || is_plain(object) || is_given(object) || !fresh_.insert(object).second) return;
  Py_INCREF(object);
  if (PyGen_Check(object)) {
    generators_.push_back(object);
    return;
  }
  order_.push_back(object);
  constexpr size_t kAll = 2048;
  if (order_.size() % kAll == 0) {
    sweep(0);
  } else if (THPVariable_Check(object)) {
    let_go_of_recent();
  }
}

void CallObjects::make_tensors(PyObject* value) {
  if (THPVariable_Check(value)) return make(value);
  if (!PyTuple_CheckExact(value) && !PyList_CheckExact(value)) return;
  make(value);
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); i++) make_tensors(PySequence_Fast_GET_ITEM(value, i));
}

void CallObjects::let_go_of_recent() {
  constexpr size_t kRecent = 48;
  sweep(order_.size() > kRecent ? order_.size() - kRecent : 0);
}

// Drops those that nobody else has: without us they would be gone by now.
void CallObjects::sweep(size_t from) {
  size_t kept = from;
  for (size_t i = from; i < order_.size(); i++) {
    PyObject* object = order_[i];
    if (is_left(object)) {
      fresh_.erase(object);
      Py_DECREF(object);
    } else {
      order_[kept++] = object;
    }
  }
  order_.resize(kept);
}

void CallObjects::let_go() {
  fresh_.clear();
  release(order_);
  release(generators_);
}

void CallObjects::end_left_generators(const py::object& refuse) {
  for (size_t i = generators_.size(); i-- > 0;) {
    PyObject* one = generators_[i];
    if (Py_REFCNT(one) != 1) continue;
    if (has_end_to_run(one)) refuse("lets go of a generator before its end", py::none());
    generators_.erase(generators_.begin() + static_cast<ptrdiff_t>(i));
    fresh_.erase(one);
    Py_DECREF(one);
    if (i > generators_.size()) i = generators_.size();
  }
}

py::list CallObjects::generators() const {
  py::list all;
  for (PyObject* one : generators_) all.append(py::handle(one));
  return all;
}

}  // namespace torchreel::graphs
