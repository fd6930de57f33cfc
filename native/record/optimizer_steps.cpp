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
at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;

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

// The optimizer that steps in this thread, a new reference; null if there is none.
PyObject* stepping_optimizer() {
  PyFrameObject* frame = PyEval_GetFrame();
  Py_XINCREF(frame);
  PyObject* optimizer = nullptr;
  while (frame != nullptr && optimizer == nullptr) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    if (is_step(code)) optimizer = local(frame, "self");
    Py_DECREF(code);
    PyFrameObject* back = optimizer == nullptr ? PyFrame_GetBack(frame) : nullptr;
    Py_DECREF(frame);
    frame = back;
  }
  return optimizer;
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

void on_end(const at::RecordFunction& call, at::ObserverContext*) {
  if (!std::string_view(call.name()).starts_with("Optimizer.step#") || !Py_IsInitialized()) return;
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *type, *value, *trace;  // a step may end by an error, which is not ours
  PyErr_Fetch(&type, &value, &trace);
  Recording* recording = handle == at::INVALID_CALLBACK_HANDLE ? nullptr : Recording::active();
  PyObject* optimizer = recording == nullptr ? nullptr : stepping_optimizer();
  if (optimizer != nullptr && is_clock(optimizer)) end_step(*recording);
  Py_XDECREF(optimizer);
  PyErr_Restore(type, value, trace);
  PyGILState_Release(gil);
}

std::unique_ptr<at::ObserverContext> on_begin(const at::RecordFunction&) { return nullptr; }

}  // namespace

void count_optimizer_steps(int64_t first, bool begun) {
  stop_counting_optimizer_steps();
  count = {first, begun, nullptr};
  handle = at::addGlobalCallback(at::RecordFunctionCallback(&on_begin, &on_end).scopes({at::RecordScope::USER_SCOPE}));
}

bool stop_counting_optimizer_steps() {
  if (handle != at::INVALID_CALLBACK_HANDLE) at::removeCallback(std::exchange(handle, at::INVALID_CALLBACK_HANDLE));
  Py_CLEAR(count.clock);
  return count.begun;
}

}  // namespace torchreel
