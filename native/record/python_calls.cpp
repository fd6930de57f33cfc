#include "record/python_calls.h"

#include <unordered_map>
#include <utility>

#include "cpython/frames.h"
#include "cpython/interpreter.h"
#include "record/models.h"
#include "record/recording.h"
#include "record/stream.h"

namespace torchreel {

namespace {

// Written under the GIL while the hook is off; read by the hook, under the GIL too.
EvalFunction next_eval = nullptr;
bool watching = false;
bool record_python = false;
bool calls_paused = false;
bool of_models_only = false;
PyCodeObject* module_code = nullptr;
PyObject* module_namer = nullptr;
PyObject* module_type = nullptr;   // torch.nn.Module
PyObject* forward_name = nullptr;  // "forward", interned, as the names of code objects are
std::unordered_map<PyObject*, uint32_t> module_names;
// While a module is being named, or a profiler does its own work, the calls that this takes are not the program's.
__thread int own_work __attribute__((tls_model("initial-exec"))) = 0;

// The module whose call is the innermost that this thread has begun to record.
__thread PyObject* innermost_module __attribute__((tls_model("initial-exec"))) = nullptr;

// The module that a frame calls, or null: by its call, or by its forward() if that is not part of its call.
PyObject* called_module(const torchreel_frame* frame) {
  if (module_code == nullptr) return nullptr;
  if (frame->code == module_code) return frame->localsplus[0];
  if (frame->code->co_name != forward_name || frame->code->co_argcount == 0) return nullptr;
  PyObject* self = frame->localsplus[0];
  if (self == nullptr || self == innermost_module) return nullptr;
  return PyObject_TypeCheck(self, reinterpret_cast<PyTypeObject*>(module_type)) ? self : nullptr;
}

uint32_t name_of_code(Stream* stream, PyCodeObject* code) {
  uint64_t hash = reinterpret_cast<uint64_t>(code) >> 5;
  const NameSlot& slot = stream->names.find(hash);
  if (TORCHREEL_LIKELY(slot.key == code)) return slot.id;
  FrameTable& frames = stream->recording->frames;
  frames.keep(code);
  uint32_t id = layout::kInlineName;
  if (!frames.hides(code)) id = stream->recording->names.id(describe(code), "", layout::kPython);
  stream->names.missed(hash) = {code, id};
  return id;
}

// The id of a module's name, asked of Python at first sight.
uint32_t name_of_module(PyObject* module) {
  auto known = module_names.find(module);
  if (known != module_names.end()) return known->second;
  own_work++;
  // Nor are they shown to a profile or trace function of the program's.
  PyThreadState* state = PyThreadState_Get();
  PyThreadState_EnterTracing(state);
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
  PyThreadState_LeaveTracing(state);
  own_work--;
  module_names[module] = id;
  return id;
}

uint32_t name_of_call(torchreel_frame* frame, PyObject* module) {
  if (module != nullptr) return name_of_module(module);
  Stream* stream = writable_stream();
  if (stream == nullptr) return layout::kInlineName;
  uint32_t name = name_of_code(stream, frame->code);
  leave_event(stream);
  return name;
}

// The frame that this thread has handed on: it comes back where a hook after ours was put before it again, as
// torch.compile does, and then it is for Python itself to evaluate.
__thread torchreel_frame* evaluated __attribute__((tls_model("initial-exec"))) = nullptr;

PyObject* eval_next(PyThreadState* state, torchreel_frame* frame, int throwing) {
  torchreel_frame* outer = std::exchange(evaluated, frame);
  PyObject* result = next_eval(state, frame, throwing);
  evaluated = outer;
  return result;
}

// Whether or not it is recorded: its forward() is part of a call of the module.
PyObject* eval_call(PyObject* module, PyThreadState* state, torchreel_frame* frame, int throwing) {
  PyObject* outer = innermost_module;
  if (module != nullptr) innermost_module = module;
  PyObject* result = eval_next(state, frame, throwing);
  innermost_module = outer;
  return result;
}

PyObject* eval_and_record(PyThreadState* state, torchreel_frame* frame, int throwing);

// A hook that stood before ours, and took itself away after nothing was watched any more, has put ours back.
PyObject* eval_unwatched(PyThreadState* state, torchreel_frame* frame, int throwing) {
  EvalFunction current = set_eval(next_eval);
  if (current != &eval_and_record) set_eval(current);
  return eval_next(state, frame, throwing);
}

PyObject* eval_and_record(PyThreadState* state, torchreel_frame* frame, int throwing) {
  if (TORCHREEL_UNLIKELY(frame == evaluated)) return eval_by_default(state, frame, throwing);
  if (TORCHREEL_UNLIKELY(!watching)) return eval_unwatched(state, frame, throwing);
  PyObject* module = called_module(frame);
  if ((module == nullptr && !record_python) || calls_paused || own_work > 0) return eval_next(state, frame, throwing);
  if (of_models_only && current_model() == nullptr) return eval_call(module, state, frame, throwing);
  uint32_t name = name_of_call(frame, module);
  Stream* stream = name == layout::kInlineName ? nullptr : writable_stream();
  if (stream == nullptr) return eval_call(module, state, frame, throwing);
  uint64_t epoch = stream->epoch;
  commit_event(stream, put_head(stream, begin_event(stream), layout::kBegin, name));
  PyObject* result = eval_call(module, state, frame, throwing);
  stream = open_stream(epoch);
  if (stream != nullptr) commit_event(stream, put_head(stream, begin_event(stream), layout::kEnd, 0));
  return result;
}

}  // namespace

void watch_calls(bool python, PyObject* module_call, PyObject* name_module, PyObject* given_module_type) {
  record_python = python;
  calls_paused = false;
  Recording* recording = Recording::active();
  of_models_only = recording != nullptr && recording->options.models;
  module_code = reinterpret_cast<PyCodeObject*>(module_call);
  Py_XINCREF(module_call);
  Py_XINCREF(name_module);
  module_namer = name_module;
  module_names.clear();
  module_type = given_module_type;
  Py_XINCREF(given_module_type);
  if (forward_name == nullptr) forward_name = PyUnicode_InternFromString("forward");
  watching = true;
  EvalFunction current = set_eval(&eval_and_record);
  if (current != &eval_and_record) next_eval = current;
}

void unwatch_calls() {
  if (next_eval == nullptr) return;
  // Another hook may have been put before ours since: it calls ours, which then only passes through.
  EvalFunction current = set_eval(next_eval);
  if (current != &eval_and_record) set_eval(current);
  watching = false;
  record_python = false;
  Py_CLEAR(module_code);
  Py_CLEAR(module_namer);
  Py_CLEAR(module_type);
  module_names.clear();
}

void pause_calls(bool paused) { calls_paused = paused; }

void do_own_work(bool begins) { own_work += begins ? 1 : -1; }

void collects_garbage(bool begins) {
  // The recording and the stream in which this thread's collection began; a collection does not run within another.
  static __thread uint64_t began __attribute__((tls_model("initial-exec"))) = 0;
  if (begins) {
    Stream* stream = calls_paused ? nullptr : writable_stream();
    began = 0;
    if (stream == nullptr) return;
    uint32_t name = stream->recording->names.id("Python GC", "", layout::kPython);
    if (name == layout::kInlineName) return leave_event(stream);
    began = stream->epoch;
    commit_event(stream, put_head(stream, begin_event(stream), layout::kBegin, name));
  } else if (began != 0) {
    Stream* stream = open_stream(began);
    if (stream != nullptr) commit_event(stream, put_head(stream, begin_event(stream), layout::kEnd, 0));
    began = 0;
  }
}

void forget_module(PyObject* module) { module_names.erase(module); }

}  // namespace torchreel
