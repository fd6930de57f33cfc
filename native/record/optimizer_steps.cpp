#include "record/optimizer_steps.h"

#include <ATen/record_function.h>
#include <Python.h>

#include <string_view>

#include "base/clock.h"
#include "record/recording.h"

namespace torchreel {

namespace {

// All of it is guarded by the GIL.
struct Count {
  int64_t number = 0;
  bool begun = false;
  PyObject* clock = nullptr;  // a weak reference to the optimizer whose steps count
};
Count count;
at::CallbackHandle step_callback = at::INVALID_CALLBACK_HANDLE;

// torch.optim.optimizer.Optimizer.profile_hook_step.<locals>.wrapper, which every step runs in.
bool is_step(PyCodeObject* code) {
  const char* name = PyUnicode_AsUTF8(code->co_name);
  const char* file = PyUnicode_AsUTF8(code->co_filename);
  PyErr_Clear();
  return name != nullptr && file != nullptr && std::string_view(name) == "wrapper" &&
         std::string_view(file).ends_with("torch/optim/optimizer.py");
}

PyObject* local(PyFrameObject* frame, const char* name) {
  PyObject* locals = PyFrame_GetLocals(frame);
  PyObject* value = locals != nullptr ? PyMapping_GetItemString(locals, name) : nullptr;
  Py_XDECREF(locals);
  PyErr_Clear();
  return value;
}

// The optimizer that steps in this thread, a new reference; null if there is none, or if the step is part of another
// one of the same optimizer, as where a subclass calls its parent's.
PyObject* stepping_optimizer() {
  PyFrameObject* frame = PyEval_GetFrame();
  Py_XINCREF(frame);
  PyObject* optimizer = nullptr;
  bool is_part = false;
  while (frame != nullptr) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    PyObject* found = is_step(code) ? local(frame, "self") : nullptr;
    Py_DECREF(code);
    if (optimizer == nullptr) {
      optimizer = found;
    } else {
      is_part = is_part || found == optimizer;
      Py_XDECREF(found);
    }
    PyFrameObject* back = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = back;
  }
  if (is_part) Py_CLEAR(optimizer);
  return optimizer;
}

// The error that the program is handling, for comparison only.
const void* handled_error() {
  PyObject* error = PyErr_GetHandledException();
  Py_XDECREF(error);
  return error;
}

// What was handled when the step began: a step that ends while another error is handled has failed.
struct Begun : at::ObserverContext {
  const void* error = nullptr;
};

bool is_step(const at::RecordFunction& call) {
  return std::string_view(call.name()).starts_with("Optimizer.step#") && Py_IsInitialized();
}

// Whether the steps of this optimizer count: those of the first one do, and once it is gone those of the next.
bool is_clock(PyObject* optimizer) {
  if (count.clock == nullptr || PyWeakref_GetObject(count.clock) == Py_None) {
    Py_XDECREF(count.clock);
    count.clock = PyWeakref_NewRef(optimizer, nullptr);
    PyErr_Clear();
  }
  return count.clock != nullptr && PyWeakref_GetObject(count.clock) == optimizer;
}

void end_step(Recording& recording) {
  if (!count.begun) {
    count.begun = true;
    recording.define_step(count.number, layout::kFirstStep, recording.start_tick());
  }
  recording.define_step(++count.number, layout::kOptimizerStep, ticks());
}

void on_end(const at::RecordFunction& call, at::ObserverContext* context) {
  if (context == nullptr || !is_step(call)) return;
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *type, *value, *trace;  // a step may end by an error, which is not ours
  PyErr_Fetch(&type, &value, &trace);
  Recording* recording = step_callback == at::INVALID_CALLBACK_HANDLE ? nullptr : Recording::active();
  const void* error = handled_error();
  bool failed = error != nullptr && error != static_cast<Begun*>(context)->error;
  PyObject* optimizer = recording == nullptr || failed ? nullptr : stepping_optimizer();
  if (optimizer != nullptr && is_clock(optimizer)) end_step(*recording);
  Py_XDECREF(optimizer);
  PyErr_Restore(type, value, trace);
  PyGILState_Release(gil);
}

std::unique_ptr<at::ObserverContext> on_begin(const at::RecordFunction& call) {
  if (!is_step(call)) return nullptr;
  auto begun = std::make_unique<Begun>();
  PyGILState_STATE gil = PyGILState_Ensure();
  begun->error = handled_error();
  PyGILState_Release(gil);
  return begun;
}

}  // namespace

void count_optimizer_steps(int64_t first, bool begun) {
  stop_counting_optimizer_steps();
  count = {first, begun, nullptr};
  step_callback =
      at::addGlobalCallback(at::RecordFunctionCallback(&on_begin, &on_end).scopes({at::RecordScope::USER_SCOPE}));
}

bool stop_counting_optimizer_steps() {
  if (step_callback != at::INVALID_CALLBACK_HANDLE)
    at::removeCallback(std::exchange(step_callback, at::INVALID_CALLBACK_HANDLE));
  Py_CLEAR(count.clock);
  return count.begun;
}

}  // namespace torchreel
