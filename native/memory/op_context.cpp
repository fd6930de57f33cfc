#include "memory/op_context.h"

#include <ATen/record_function.h>
#include <Python.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/node.h>

#include <cstring>
#include <memory>

#include "memory/history.h"

namespace torchreel {

namespace {

constexpr char kRegion[] = "Torch-Compiled Region";

at::CallbackHandle regions = at::INVALID_CALLBACK_HANDLE;
at::CallbackHandle forwards = at::INVALID_CALLBACK_HANDLE;
at::CallbackHandle backwards = at::INVALID_CALLBACK_HANDLE;

bool is_region(const at::RecordFunction& call) { return strncmp(call.name(), kRegion, sizeof kRegion - 1) == 0; }

// Says to the end of a call that its beginning was told.
struct Told final : at::ObserverContext {};

std::unique_ptr<at::ObserverContext> begin_region(const at::RecordFunction& call) {
  if (!is_region(call)) return nullptr;
  History::get().enter_region(call.name());
  return std::make_unique<Told>();
}

void end_region(const at::RecordFunction&, at::ObserverContext* told) {
  if (told != nullptr) History::get().leave_region();
}

std::unique_ptr<at::ObserverContext> begin_forward(const at::RecordFunction& call) {
  if (call.seqNr() >= 0) History::get().note_forward(at::RecordFunction::currentThreadId(), call.seqNr());
  return nullptr;
}

std::unique_ptr<at::ObserverContext> begin_backward(const at::RecordFunction& call) {
  History::get().enter_backward(call.forwardThreadId(), call.seqNr());
  return std::make_unique<Told>();
}

void end_backward(const at::RecordFunction&, at::ObserverContext* told) {
  if (told != nullptr) History::get().leave_backward();
}

void watch(at::CallbackHandle& handle, bool on, at::RecordFunctionCallback callback, at::RecordScope scope) {
  if (on == (handle != at::INVALID_CALLBACK_HANDLE)) return;
  if (on) {
    handle = at::addGlobalCallback(callback.scopes({scope}));
  } else {
    at::removeCallback(handle);
    handle = at::INVALID_CALLBACK_HANDLE;
  }
}

struct Reference {
  PyObject* object;
  explicit Reference(PyObject* made) : object(made) {
    if (made == nullptr) PyErr_Clear();
  }
  Reference(const Reference&) = delete;
  ~Reference() { Py_XDECREF(object); }
};

// `torch._C._current_autograd_node().metadata`, a dictionary that anomaly detection writes to. Needs the GIL.
std::string lines_of_node() {
  std::string text;
  Reference torch(PyImport_ImportModule("torch._C"));
  if (torch.object == nullptr) return text;
  Reference node(PyObject_CallMethod(torch.object, "_current_autograd_node", nullptr));
  Reference metadata(node.object == nullptr ? nullptr : PyObject_GetAttrString(node.object, "metadata"));
  if (metadata.object == nullptr || !PyDict_Check(metadata.object)) return text;
  PyObject* lines = PyDict_GetItemString(metadata.object, "traceback_");
  if (lines == nullptr || !PyList_Check(lines)) return text;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(lines); i++) {
    Py_ssize_t bytes = 0;
    const char* line = PyUnicode_AsUTF8AndSize(PyList_GET_ITEM(lines, i), &bytes);
    if (line == nullptr) {
      PyErr_Clear();
      continue;
    }
    text.append(line, bytes).push_back('\0');
  }
  return text;
}

}  // namespace

void watch_regions(bool on) {
  watch(regions, on, at::RecordFunctionCallback(&begin_region, &end_region), at::RecordScope::FUNCTION);
}

void watch_forwards(bool on) {
  watch(forwards, on, at::RecordFunctionCallback(&begin_forward), at::RecordScope::FUNCTION);
  watch(backwards, on, at::RecordFunctionCallback(&begin_backward, &end_backward), at::RecordScope::BACKWARD_FUNCTION);
}

bool detects_anomalies() { return torch::autograd::AnomalyMode::is_enabled(); }

std::string anomaly_lines() {
  if (!torch::autograd::get_current_node()) return "";
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);  // an exception that is under way stays so
  std::string lines = lines_of_node();
  PyErr_Restore(type, value, trace);
  PyGILState_Release(gil);
  return lines;
}

}  // namespace torchreel
