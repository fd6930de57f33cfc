#include "tape/dispatch/escapes.h"

#include <Python.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/autograd/python_variable.h>

#include "tape/capture/capture.h"

namespace torchreel::tape {

namespace {

// Replaces the function of a method in place, so that Python's caches of the class stay valid.
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

// The tape, if it records this thread, and the thread is not within the kernel of an op, which replays as a whole.
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

// Inputs of a replay may have other strides and addresses, unless Python asked for them.
template <int which>
PyObject* ask_strides(PyObject* self, PyObject* args, PyObject* kwargs);
template <int which>
PyObject* ask_address(PyObject* self, PyObject*);

Method kStrides[] = {{"stride", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&ask_strides<0>))},
                     {"is_contiguous", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&ask_strides<1>))}};
Method kAddresses[] = {{"storage_offset", &ask_address<0>}, {"data_ptr", &ask_address<1>}};

void note_asked(PyObject* self, Asked what) {
  const auto* tensor = tensor_in(self);
  auto* tape = tape_of_caller();
  if (tape != nullptr && tensor != nullptr && is_plain(*tensor)) tape->asked(*tensor, what);
}

template <int which>
PyObject* ask_strides(PyObject* self, PyObject* args, PyObject* kwargs) {
  note_asked(self, kLayoutAsked);
  auto theirs = reinterpret_cast<PyCFunctionWithKeywords>(reinterpret_cast<void (*)()>(kStrides[which].theirs));
  return theirs(self, args, kwargs);
}

template <int which>
PyObject* ask_address(PyObject* self, PyObject* nothing) {
  note_asked(self, which == 0 ? kLayoutAsked : kAddressAsked);
  return kAddresses[which].theirs(self, nothing);
}

// `x.grad = ...` and `x.requires_grad` leave no other trace.
struct Property {
  const char* name;
  getter our_get;
  setter our_set;
  PyGetSetDef* definition = nullptr;
  getter get = nullptr;
  setter set = nullptr;
};

PyObject* get_gradient(PyObject* self, void* closure);
int set_gradient(PyObject* self, PyObject* value, void* closure);
PyObject* version(PyObject* self, void* closure);
PyObject* requires_gradient(PyObject* self, void* closure);
PyObject* is_leaf(PyObject* self, void* closure);

Property kGradient{"grad", &get_gradient, &set_gradient};
Property kVersion{"_version", &version, nullptr};
Property kRequiresGradient{"requires_grad", &requires_gradient, nullptr};
Property kIsLeaf{"is_leaf", &is_leaf, nullptr};

PyObject* get_gradient(PyObject* self, void* closure) {
  if (auto* tape = tape_of_caller()) {
    std::lock_guard lock(tape->mutex);
    tape->gradients_read.insert(self);
  }
  return kGradient.get(self, closure);
}

PyObject* version(PyObject* self, void* closure) {
  if (auto* tape = tape_of_caller()) {
    std::lock_guard lock(tape->mutex);
    tape->version_read = true;
  }
  return kVersion.get(self, closure);
}

int set_gradient(PyObject* self, PyObject* value, void* closure) {
  int failed = kGradient.set(self, value, closure);
  auto* tape = tape_of_caller();
  if (failed == 0 && tape != nullptr) {
    std::lock_guard lock(tape->mutex);
    tape->gradients_set.emplace(self, tape->ops.size());
  }
  return failed;
}

PyObject* requires_gradient(PyObject* self, void* closure) {
  note_asked(self, kGradientAsked);
  return kRequiresGradient.get(self, closure);
}

PyObject* is_leaf(PyObject* self, void* closure) {
  note_asked(self, kGradientAsked);
  return kIsLeaf.get(self, closure);
}

void exchange(Property& property, PyObject* of, bool on) {
  if (property.definition == nullptr) {
    PyObject* descriptor = PyObject_GetAttrString(of, property.name);
    if (descriptor == nullptr || !Py_IS_TYPE(descriptor, &PyGetSetDescr_Type)) {
      PyErr_Clear();
      Py_XDECREF(descriptor);
      return;
    }
    property.definition = reinterpret_cast<PyGetSetDescrObject*>(descriptor)->d_getset;
    property.get = property.definition->get;
    property.set = property.definition->set;
    Py_DECREF(descriptor);
  }
  property.definition->get = on && property.our_get != nullptr ? property.our_get : property.get;
  property.definition->set = on && property.our_set != nullptr ? property.our_set : property.set;
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

// Python changes a generator: the tape does the same to it at the same point, and knows the states that Python holds.
enum GeneratorCall { kManualSeed, kSeed, kSetState, kGraphsafeSetState, kGetState, kInitialSeed, kCloneState };

template <GeneratorCall which>
PyObject* call_generator(PyObject* self, PyObject* argument);

Method kGeneratorCalls[] = {
    {"manual_seed", &call_generator<kManualSeed>}, {"seed", &call_generator<kSeed>},
    {"set_state", &call_generator<kSetState>},     {"graphsafe_set_state", &call_generator<kGraphsafeSetState>},
    {"get_state", &call_generator<kGetState>},     {"initial_seed", &call_generator<kInitialSeed>},
    {"clone_state", &call_generator<kCloneState>}};

at::Tensor plain_tensor(PyObject* object) {
  const auto* tensor = tensor_in(object);
  return tensor != nullptr && is_plain(*tensor) ? *tensor : at::Tensor();
}

template <GeneratorCall which>
PyObject* call_generator(PyObject* self, PyObject* argument) {
  const auto generator = reinterpret_cast<THPGenerator*>(self)->cdata;
  // Record the state before it is lost, whichever thread sets it.
  if (auto* tape = Capture::active()) tape->note_generator(generator);
  PyObject* result = kGeneratorCalls[which].theirs(self, argument);
  auto* tape = tape_of_caller();
  if (result == nullptr || tape == nullptr) return result;
  if constexpr (which == kGetState) tape->generator_read(generator, plain_tensor(result));
  if constexpr (which == kSetState) tape->generator_set(generator, plain_tensor(argument));
  if constexpr (which == kManualSeed) tape->generator_set(generator, at::Tensor());
  if constexpr (which == kSeed) tape->generator_number(generator, true);
  if constexpr (which == kInitialSeed) tape->generator_number(generator, false);
  if constexpr (which == kCloneState) {
    tape->generator_cloned(generator, reinterpret_cast<THPGenerator*>(result)->cdata);
  }
  return result;
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
  for (auto* property : {&kGradient, &kVersion, &kRequiresGradient, &kIsLeaf}) exchange(*property, base, on);
  for (auto* methods : {kStrides, kAddresses}) {
    for (int i = 0; i < 2; i++) {
      find(methods[i], base);
      exchange(methods[i], on);
    }
  }
  static PyObject* torch = PyImport_ImportModule("torch");
  for (auto& method : kMakers) {
    find(method, &method == &kMakers[2] ? base : torch);
    exchange(method, on);
  }
  for (auto& method : kGeneratorCalls) {
    find(method, THPGeneratorClass);
    exchange(method, on);
  }
}

}  // namespace torchreel::tape
