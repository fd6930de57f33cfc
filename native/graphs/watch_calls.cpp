#include "watch_calls.h"

#include <string_view>

#include "../interpreter.h"

namespace py = pybind11;

namespace torchreel::graphs {

namespace {

// What runs on this thread, the innermost first; and the profile function that was there before.
thread_local WatchCalls* innermost = nullptr;
thread_local Py_tracefunc before = nullptr;

// The argument is that of the function before, so that sys.getprofile() gives what the program has set.
int on_event(PyObject* argument, PyFrameObject* frame, int what, PyObject* value) {
  if (what == PyTrace_CALL && innermost != nullptr) innermost->take_call();
  return before == nullptr ? 0 : before(argument, frame, what, value);
}

PyObject* first_local(const torchreel_frame* frame) {
  PyCodeObject* code = frame->code;
  if (code->co_argcount == 0) return nullptr;
  PyObject* first = frame->localsplus[0];
  if (first != nullptr && PyCell_Check(first)) first = PyCell_GET(first);  // where a function within uses it too
  return first;
}

bool has_self(PyCodeObject* code) {
  if (code->co_argcount == 0) return false;
  PyObject* name = PyTuple_GET_ITEM(code->co_localsplusnames, 0);
  return PyUnicode_CompareWithASCIIString(name, "self") == 0;
}

}  // namespace

void WatchCalls::Objects::take(PyObject* object) {
  if (object == nullptr || !PyType_SUPPORTS_WEAKREFS(Py_TYPE(object)) || !known.insert(object).second) return;
  auto reference = py::reinterpret_steal<py::object>(PyWeakref_NewRef(object, nullptr));
  if (!reference) return PyErr_Clear();
  references.push_back(std::move(reference));
}

py::list WatchCalls::Objects::alive() const {
  py::list all;
  for (const auto& reference : references) {
    PyObject* object = PyWeakref_GET_OBJECT(reference.ptr());
    if (object != Py_None) all.append(py::reinterpret_borrow<py::object>(object));
  }
  return all;
}

WatchCalls::WatchCalls(std::vector<std::string> foreign, std::string library, py::object call, py::object init)
    : foreign_(std::move(foreign)), library_(std::move(library)), call_(std::move(call)), init_(std::move(init)) {}

WatchCalls::~WatchCalls() { stop(); }

void WatchCalls::start() {
  if (running_) return;
  running_ = true;
  outer_ = innermost;
  innermost = this;
  PyThreadState* state = PyThreadState_Get();
  if (state->c_profilefunc == on_event) return;
  before = state->c_profilefunc;
  PyEval_SetProfile(on_event, state->c_profileobj);
}

void WatchCalls::stop() {
  if (!running_ || innermost != this) return;
  running_ = false;
  innermost = outer_;
  PyThreadState* state = PyThreadState_Get();
  // Where the program has set another one meanwhile, that one stays.
  if (innermost == nullptr && state->c_profilefunc == on_event) PyEval_SetProfile(before, state->c_profileobj);
  if (innermost == nullptr) before = nullptr;
}

bool WatchCalls::is_foreign(PyCodeObject* code) const {
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(code->co_filename, &size);
  if (text == nullptr) {
    PyErr_Clear();
    return false;
  }
  std::string_view file(text, static_cast<size_t>(size));
  for (const auto& prefix : foreign_) {
    if (file.starts_with(prefix)) return true;
  }
  return file.starts_with(library_) && file.find("-packages/") == std::string_view::npos;
}

void WatchCalls::take_call() {
  const torchreel_frame* frame = innermost_frame(PyThreadState_Get());
  if (frame == nullptr) return;
  PyCodeObject* code = frame->code;
  auto [known, is_new] = codes_.try_emplace(code);
  Code& seen = known->second;
  if (is_new) {
    kept_.push_back(py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(code)));
    seen.foreign = is_foreign(code);
    if (!seen.foreign) seen.globals = py::reinterpret_borrow<py::object>(frame->globals);
  }
  if (!seen.foreign) {
    seen.functions.take(frame->function);
    if (has_self(code)) seen.selves.take(first_local(frame));
  } else if (reinterpret_cast<PyObject*>(code) == call_.ptr()) {
    modules_.take(first_local(frame));
  } else if (reinterpret_cast<PyObject*>(code) == init_.ptr()) {
    born_.take(first_local(frame));
  }
  if (outer_ != nullptr) outer_->take_call();
}

py::list WatchCalls::functions() const {
  py::list all;
  for (const auto& code : kept_) {
    const Code& seen = codes_.at(reinterpret_cast<PyCodeObject*>(code.ptr()));
    if (seen.foreign) continue;
    all.append(py::make_tuple(code, seen.globals, seen.functions.alive(), seen.selves.alive()));
  }
  return all;
}

py::list WatchCalls::modules() const { return modules_.alive(); }
py::list WatchCalls::born() const { return born_.alive(); }

}  // namespace torchreel::graphs
