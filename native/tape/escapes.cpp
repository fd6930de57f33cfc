#include "escapes.h"

#include <Python.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/autograd/python_variable.h>

#include "capture.h"

namespace torchreel::tape {

namespace {

// A method's function can be exchanged where it stands: nothing that Python has cached of the class changes.
struct Method {
  const char* name;
  PyCFunction ours;
  PyMethodDef* definition = nullptr;
  PyCFunction theirs = nullptr;
};

const at::Tensor* tensor_in(PyObject* object) {
  return object != nullptr && THPVariable_Check(object) ? &THPVariable_Unpack(object) : nullptr;
}

bool is_plain(const at::Tensor& tensor) { return tensor.defined() && !tensor.key_set().has(c10::DispatchKey::Python); }

// The tape, unless this thread is not on it or within the kernel of an op, which replays as a whole.
Capture* tape_of_caller() {
  bool on = c10::impl::tls_is_dispatch_key_included(kKey) && !c10::impl::tls_is_dispatch_key_excluded(kKey);
  return on ? Capture::active() : nullptr;
}

PyObject* numpy(PyObject* self, PyObject* args, PyObject* kwargs);
PyObject* tolist(PyObject* self, PyObject*);

Method kToNumpy{"numpy", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&numpy))};
Method kToList{"tolist", &tolist};

PyObject* numpy(PyObject* self, PyObject* args, PyObject* kwargs) {
  auto* result =
      reinterpret_cast<PyCFunctionWithKeywords>(reinterpret_cast<void (*)()>(kToNumpy.theirs))(self, args, kwargs);
  const auto* tensor = tensor_in(self);
  auto* tape = tape_of_caller();
  if (result != nullptr && tape != nullptr && tensor != nullptr && is_plain(*tensor)) tape->share(*tensor);
  return result;
}

PyObject* tolist(PyObject* self, PyObject* nothing) {
  const auto* tensor = tensor_in(self);
  auto* tape = tape_of_caller();
  if (tape != nullptr && tensor != nullptr && is_plain(*tensor)) tape->seen(*tensor);
  return kToList.theirs(self, nothing);
}

// torch.tensor([x[0], x[1]]) reads the numbers of tensors without an op.
template <int which>
PyObject* make_tensor(PyObject* self, PyObject* args, PyObject* kwargs);

Method kMakers[] = {{"tensor", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&make_tensor<0>))},
                    {"as_tensor", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&make_tensor<1>))},
                    {"new_tensor", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&make_tensor<2>))}};

void see_parts(Capture& tape, PyObject* value, int depth) {
  constexpr int kDeepest = 8;
  bool list = PyList_Check(value);
  if ((!list && !PyTuple_Check(value)) || depth > kDeepest) return;
  Py_ssize_t count = list ? PyList_GET_SIZE(value) : PyTuple_GET_SIZE(value);
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject* part = list ? PyList_GET_ITEM(value, i) : PyTuple_GET_ITEM(value, i);
    if (PyFloat_CheckExact(part) || PyLong_CheckExact(part)) continue;
    const auto* tensor = tensor_in(part);
    if (tensor != nullptr && is_plain(*tensor)) {
      tape.seen(*tensor);
    } else {
      see_parts(tape, part, depth + 1);
    }
  }
}

template <int which>
PyObject* make_tensor(PyObject* self, PyObject* args, PyObject* kwargs) {
  auto* tape = tape_of_caller();
  if (tape != nullptr) {
    PyObject* data = PyTuple_GET_SIZE(args) > 0 ? PyTuple_GET_ITEM(args, 0) : nullptr;
    if (data == nullptr && kwargs != nullptr) data = PyDict_GetItemString(kwargs, "data");
    if (data != nullptr) see_parts(*tape, data, 0);
  }
  auto theirs = reinterpret_cast<PyCFunctionWithKeywords>(reinterpret_cast<void (*)()>(kMakers[which].theirs));
  return theirs(self, args, kwargs);
}

// A generator that Python sets: what it was before is asked for while it is still known.
template <int which>
PyObject* set_generator(PyObject* self, PyObject* argument);

Method kSetters[] = {{"manual_seed", &set_generator<0>},
                     {"seed", &set_generator<1>},
                     {"set_state", &set_generator<2>},
                     {"graphsafe_set_state", &set_generator<3>}};

template <int which>
PyObject* set_generator(PyObject* self, PyObject* argument) {
  auto* tape = Capture::active();
  if (tape != nullptr) tape->note_generator(reinterpret_cast<THPGenerator*>(self)->cdata);
  return kSetters[which].theirs(self, argument);
}

void find(Method& method, PyObject* of) {
  if (method.definition != nullptr) return;
  PyObject* descriptor = PyObject_GetAttrString(of, method.name);
  if (descriptor == nullptr) {
    PyErr_Clear();
    return;
  }
  if (Py_IS_TYPE(descriptor, &PyMethodDescr_Type)) {
    method.definition = reinterpret_cast<PyMethodDescrObject*>(descriptor)->d_method;
  } else if (PyCFunction_CheckExact(descriptor)) {
    method.definition = reinterpret_cast<PyCFunctionObject*>(descriptor)->m_ml;
  }
  if (method.definition != nullptr) method.theirs = method.definition->ml_meth;
  Py_DECREF(descriptor);
}

void exchange(Method& method, bool on) {
  if (method.definition != nullptr) method.definition->ml_meth = on ? method.ours : method.theirs;
}

}  // namespace

void watch_escapes(bool on) {
  auto* base = reinterpret_cast<PyObject*>(THPVariableClass);
  for (auto* method : {&kToNumpy, &kToList}) {
    find(*method, base);
    exchange(*method, on);
  }
  static PyObject* torch = PyImport_ImportModule("torch");
  for (auto& method : kMakers) {
    find(method, &method == &kMakers[2] ? base : torch);
    exchange(method, on);
  }
  for (auto& method : kSetters) {
    find(method, THPGeneratorClass);
    exchange(method, on);
  }
}

}  // namespace torchreel::tape
