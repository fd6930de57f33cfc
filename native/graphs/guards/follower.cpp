#include "graphs/guards/follower.h"

#include <opcode.h>

#include <utility>

#include "graphs/guards/frames.h"

namespace py = pybind11;

namespace torchreel::graphs {

namespace {

thread_local Follower* active = nullptr;

// For kMake: instead of an object of the rules that the result is told to.
PyObject* make_mark() {
  static PyObject* mark = PyUnicode_InternFromString("torchreel: the result is new");
  return mark;
}

}  // namespace

PyObject* null_mark() {
  static PyObject* mark = PyObject_CallNoArgs(reinterpret_cast<PyObject*>(&PyBaseObject_Type));
  return mark;
}

// Types of class statements share one deallocator, which C types do not name.
bool is_of_python(PyTypeObject* type) {
  static destructor mark = reinterpret_cast<PyTypeObject*>(
                               PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyType_Type), "s(){}", "sample"))
                               ->tp_dealloc;
  return type->tp_dealloc == mark;
}

Follower::Follower(py::object rules, const std::vector<int>& opcodes, const py::iterable& plain, std::string own_files)
    : rules_(std::move(rules)), objects_(plain), own_files_(std::move(own_files)) {
  op_ = rules_.attr("op");
  result_ = rules_.attr("result");
  enter_ = rules_.attr("enter");
  refuse_ = rules_.attr("refuse");
  for (int opcode : opcodes) wanted_[static_cast<size_t>(opcode)] = true;
}

Follower::~Follower() { close(); }

void Follower::close() {
  stopped_ = true;
  objects_.close();
  for (PyObject* function : std::exchange(entered_, {})) Py_DECREF(function);
  for (const auto& [code, own] : std::exchange(own_, {})) Py_DECREF(reinterpret_cast<PyObject*>(code));
  answers_.clear();
  expected_.clear();
  passed_over_.clear();
  for (auto* one : {&rules_, &op_, &result_, &enter_, &refuse_, &adopts_}) *one = py::object();
}

bool Follower::is_impossible() { return PyThreadState_Get()->c_tracefunc != nullptr || active != nullptr; }

py::object Follower::run(const py::object& function, const py::tuple& args, const py::dict& kwargs) {
  if (is_impossible()) throw std::runtime_error("This thread has a trace function already.");
  active = this;
  PyEval_SetTrace(&Follower::trace, Py_None);
  PyObject* result = PyObject_Call(function.ptr(), args.ptr(), kwargs.ptr());
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyEval_SetTrace(nullptr, nullptr);
  active = nullptr;
  PyErr_Restore(type, value, traceback);
  if (result == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(result);
}

void Follower::adopt_from(PyObject* frame) {
  adopts_ = frame == Py_None ? py::object() : py::reinterpret_borrow<py::object>(frame);
}

py::object Follower::take_names() {
  PyObject* names = names_ == nullptr ? Py_None : names_;
  names_ = nullptr;
  return py::reinterpret_borrow<py::object>(names);
}

bool Follower::is_own(PyCodeObject* code) {
  auto [known, is_new] = own_.try_emplace(code, false);
  if (is_new) {
    Py_INCREF(reinterpret_cast<PyObject*>(code));
    const char* file = PyUnicode_AsUTF8(code->co_filename);
    if (file == nullptr) PyErr_Clear();
    known->second = file != nullptr && std::string_view(file).starts_with(own_files_);
  }
  return known->second;
}

int Follower::trace(PyObject*, PyFrameObject* frame, int what, PyObject* result) {
  Follower* self = active;
  if (self == nullptr || self->stopped_) return 0;
  if (self->passing_ != nullptr) {
    if (what != PyTrace_RETURN || frame != self->passing_) return 0;
    self->passing_ = nullptr;
    // A function that is not followed made what it returns.
    if (result != nullptr) self->objects_.make_tensors(result);
    return 0;
  }
  int failed = 0;
  try {
    switch (what) {
      case PyTrace_CALL: failed = self->take_call(frame); break;
      case PyTrace_EXCEPTION: self->take_exception(frame); break;
      case PyTrace_OPCODE: failed = self->take_opcode(frame); break;
      default: break;
    }
    if (self->stopped_) self->objects_.let_go();
    return failed;
  } catch (py::error_already_set& error) {
    error.restore();
    return -1;
  }
}

void Follower::take_exception(PyFrameObject* frame) {
  Py_CLEAR(as_mirror(frame)->trace);  // there will be no result
  if (std::exchange(callee_, nullptr) == nullptr) return;
  // No frame was made, so nothing tells what decided that: its code, its default arguments.
  refuse_("calls a function with arguments that it does not take", py::handle(reinterpret_cast<PyObject*>(frame)));
}

void Follower::note_callee(torchreel_frame* frame, int opcode, int argument) {
  callee_ = nullptr;
  PyObject* callee = nullptr;
  if (opcode == CALL) {
    callee = callee_at(frame, argument);
  } else if (opcode == CALL_FUNCTION_EX) {
    callee = peek_at(frame, (argument & 1) != 0 ? 3 : 2);
  }
  if (callee == nullptr) return;
  PyObject* function = PyMethod_Check(callee) ? PyMethod_GET_FUNCTION(callee) : callee;
  bool is_python =
      PyFunction_Check(function) || (PyType_Check(function) && is_of_python(reinterpret_cast<PyTypeObject*>(function)));
  if (is_python && !entered_.contains(function)) callee_ = callee;
}

bool Follower::is_passed_over(PyCodeObject* code) const {
  for (const auto& one : passed_over_) {
    if (one.ptr() == reinterpret_cast<PyObject*>(code)) return true;
  }
  return false;
}

// Tells the rules of a function that was not made by the call, the first time that it runs.
void Follower::enter(PyFrameObject* object) {
  PyObject* function = as_mirror(object)->frame->function;
  if (objects_.is_fresh(function) || !entered_.insert(function).second) return;
  Py_INCREF(function);
  asks_++;
  enter_(py::handle(function), py::handle(reinterpret_cast<PyObject*>(object)));
}

// An object whose __init__ begins, if it is of the class that is expected.
void Follower::make_expected(torchreel_frame* frame) {
  if (expected_.empty() || frame->code->co_argcount == 0) return;
  PyObject* self = local_at(frame, 0);
  if (self == nullptr || reinterpret_cast<PyObject*>(Py_TYPE(self)) != expected_.back().ptr()) return;
  objects_.make(self);
  expected_.pop_back();
}

// The cells of this very frame.
void Follower::make_cells(torchreel_frame* frame) {
  constexpr unsigned char kCell = 0x40;  // CO_FAST_CELL
  PyCodeObject* code = frame->code;
  const auto* kinds = reinterpret_cast<const unsigned char*>(PyBytes_AS_STRING(code->co_localspluskinds));
  for (int i = 0; i < code->co_nlocalsplus; i++) {
    PyObject* local = frame->localsplus[i];
    if ((kinds[i] & kCell) != 0 && local != nullptr && PyCell_Check(local)) objects_.make(local);
  }
}

// The dict of **kwargs, which is new at each call.
void Follower::make_keywords(torchreel_frame* frame) {
  PyCodeObject* code = frame->code;
  if ((code->co_flags & CO_VARKEYWORDS) == 0) return;
  PyObject* keywords =
      local_at(frame, code->co_argcount + code->co_kwonlyargcount + ((code->co_flags & CO_VARARGS) != 0));
  if (keywords != nullptr && PyDict_CheckExact(keywords)) objects_.make(keywords);
}

// A Python function begins, or a generator goes on.
int Follower::take_call(PyFrameObject* object) {
  auto* mirror = as_mirror(object);
  auto* frame = mirror->frame;
  mirror->trace_lines = 0;
  callee_ = nullptr;
  if (is_passed_over(frame->code)) {
    passing_ = object;
    return 0;
  }
  if (is_own(frame->code)) {
    rules_.attr("enter_own")(py::handle(reinterpret_cast<PyObject*>(object)));
    return 0;
  }
  mirror->trace_opcodes = 1;
  if ((frame->code->co_flags & (CO_COROUTINE | CO_ASYNC_GENERATOR)) != 0) {
    refuse_("runs a coroutine", py::handle(reinterpret_cast<PyObject*>(object)));
    return 0;
  }
  enter(object);
  make_expected(frame);
  make_cells(frame);
  make_keywords(frame);
  if (adopts_) adopt(frame);
  return 0;
}

void Follower::adopt(torchreel_frame* frame) {
  auto* from = as_mirror(reinterpret_cast<PyFrameObject*>(adopts_.ptr()))->frame;
  if (frame->previous != from) return;
  py::object adopted = rules_.attr("adopt");
  int count = frame->code->co_argcount + ((frame->code->co_flags & CO_VARARGS) != 0);
  for (int i = 0; i < count; i++) {
    PyObject* local = local_at(frame, i);
    if (local != nullptr) adopted(py::handle(local));
  }
}

// The result of the opcode before, which is on top of the stack now.
void Follower::take_result(torchreel_frame_object* mirror) {
  if (mirror->trace == nullptr) return;
  auto told = py::reinterpret_steal<py::object>(std::exchange(mirror->trace, nullptr));
  PyObject* top = peek_at(mirror->frame, 1);
  if (top == nullptr) return;
  if (told.ptr() == make_mark()) {
    objects_.make(top);
  } else {
    asks_++;
    result_(told, py::handle(top));
  }
}

int Follower::take_opcode(PyFrameObject* object) {
  auto* mirror = as_mirror(object);
  auto* frame = mirror->frame;
  events_++;
  objects_.end_generators(refuse_);
  take_result(mirror);
  int argument, opcode = decode(frame, argument);
  if (opcode < 0) return -1;
  note_callee(frame, opcode, argument);
  if (!wanted_[static_cast<size_t>(opcode)] || stopped_) return 0;
  if (opcode == KW_NAMES) {
    names_ = PyTuple_GET_ITEM(frame->code->co_consts, argument);
    return 0;
  }
  OpcodeAnswers::Read to_note;
  switch (memo ? answers_.answer(frame, opcode, argument, to_note) : OpcodeAnswers::kAsk) {
    case OpcodeAnswers::kNothing:
      if (opcode == CALL) names_ = nullptr;
      return 0;
    case OpcodeAnswers::kMake:
      Py_INCREF(make_mark());
      mirror->trace = make_mark();
      return 0;
    case OpcodeAnswers::kAsk: break;
  }
  int failed = ask(object, opcode, argument);
  if (to_note.holder != nullptr && mirror->trace == nullptr) answers_.note(to_note);
  return failed;
}

int Follower::ask(PyFrameObject* frame, int opcode, int argument) {
  asks_++;
  PyObject* number = PyLong_FromLong(opcode);
  PyObject* value = PyLong_FromLong(argument);
  PyObject* given[] = {reinterpret_cast<PyObject*>(frame), number, value};
  PyObject* told = PyObject_Vectorcall(op_.ptr(), given, 3, nullptr);
  Py_DECREF(number);
  Py_DECREF(value);
  if (told == nullptr) return -1;
  if (told == Py_None) {
    Py_DECREF(told);
  } else {
    as_mirror(frame)->trace = told;  // f_trace is idle under a trace function of C
  }
  return 0;
}

}  // namespace torchreel::graphs
