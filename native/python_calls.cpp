#include "python_calls.h"

#include <unordered_map>

#include "frames.h"
#include "interpreter.h"
#include "models.h"
#include "recording.h"
#include "stream.h"

namespace torchreel {

namespace {

// Written under the GIL while the hook is off; read by the hook, under the GIL too.
EvalFunction next_eval = nullptr;
bool record_python = false;
bool calls_paused = false;
bool of_models_only = false;
PyCodeObject* module_code = nullptr;
PyObject* module_namer = nullptr;
std::unordered_map<PyObject*, uint32_t> module_names;
// While a module is being named the calls that this takes are not the program's.
__thread bool naming __attribute__((tls_model("initial-exec"))) = false;

uint32_t name_of_code(Stream* stream, PyCodeObject* code) {
  NameSlot& slot = stream->names[(reinterpret_cast<uint64_t>(code) >> 5) % Stream::kNames];
  if (TORCHREEL_UNLIKELY(slot.key != code)) {
    FrameTable& frames = stream->recording->frames;
    frames.keep(code);
    bool hidden = frames.hides(code);
    slot = {code, hidden ? layout::kInlineName : stream->recording->names.id(describe(code), "", layout::kPython)};
  }
  return slot.id;
}

// The id of a module's name, asked of Python at first sight.
uint32_t name_of_module(PyObject* module) {
  auto known = module_names.find(module);
  if (known != module_names.end()) return known->second;
  naming = true;
  PyObject* type;
  PyObject* value;
  PyObject* trace;
  PyErr_Fetch(&type, &value, &trace);
  PyObject* given = PyObject_CallOneArg(module_namer, module);
  uint32_t id = layout::kInlineName;
  if (given != nullptr) {
    id = static_cast<uint32_t>(PyLong_AsUnsignedLong(given));
    Py_DECREF(given);
  }
  PyErr_Clear();
  PyErr_Restore(type, value, trace);
  naming = false;
  module_names[module] = id;
  return id;
}

uint32_t name_of_call(torchreel_frame* frame, bool is_module, PyObject* module) {
  if (is_module) return name_of_module(module);
  Stream* stream = writable_stream();
  return stream == nullptr ? layout::kInlineName : name_of_code(stream, frame->code);
}

PyObject* eval_and_record(PyThreadState* state, torchreel_frame* frame, int throwing) {
  bool is_module = frame->code == module_code;
  if ((!is_module && !record_python) || calls_paused || naming) return next_eval(state, frame, throwing);
  if (of_models_only && current_model() == nullptr) return next_eval(state, frame, throwing);
  // Held over the naming: the frame's own reference may go once it runs.
  PyObject* module = is_module ? frame->localsplus[0] : nullptr;
  uint32_t name = name_of_call(frame, is_module, module);
  Stream* stream = name == layout::kInlineName ? nullptr : writable_stream();
  if (stream == nullptr) return next_eval(state, frame, throwing);
  uint64_t epoch = stream->epoch;
  commit_event(stream, put_head(stream, begin_event(stream), layout::kBegin, name));
  PyObject* result = next_eval(state, frame, throwing);
  stream = open_stream(epoch);
  if (stream != nullptr) commit_event(stream, put_head(stream, begin_event(stream), layout::kEnd, 0));
  return result;
}

}  // namespace

void watch_calls(bool python, PyObject* module_call, PyObject* name_module) {
  record_python = python;
  calls_paused = false;
  Recording* recording = Recording::active();
  of_models_only = recording != nullptr && recording->options.models;
  module_code = reinterpret_cast<PyCodeObject*>(module_call);
  Py_XINCREF(module_call);
  Py_XINCREF(name_module);
  module_namer = name_module;
  module_names.clear();
  next_eval = set_eval(&eval_and_record);
}

void unwatch_calls() {
  if (next_eval == nullptr) return;
  // Another hook may have been put before ours since: it calls ours, which then only passes through.
  EvalFunction current = set_eval(next_eval);
  if (current != &eval_and_record) set_eval(current);
  record_python = false;
  Py_CLEAR(module_code);
  Py_CLEAR(module_namer);
  module_names.clear();
}

void pause_calls(bool paused) { calls_paused = paused; }

void forget_module(PyObject* module) { module_names.erase(module); }

}  // namespace torchreel
