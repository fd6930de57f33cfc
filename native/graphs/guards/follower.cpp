#include "graphs/guards/follower.h"

#include <opcode.h>
#include <torch/csrc/autograd/python_variable.h>

#include <utility>

namespace py = pybind11;

namespace torchreel::graphs {

namespace {

thread_local Follower* active = nullptr;

// For kMake, in the place of what the result is told to.
PyObject* make_mark() {
  static PyObject* mark = PyUnicode_InternFromString("torchreel: the result is new");
  return mark;
}

// Stands for an empty place on the stack, in rules.
PyObject* null_mark() {
  static PyObject* mark = PyObject_CallNoArgs(reinterpret_cast<PyObject*>(&PyBaseObject_Type));
  return mark;
}

torchreel_frame_object* as_mirror(PyFrameObject* frame) { return reinterpret_cast<torchreel_frame_object*>(frame); }

PyObject* peek_at(torchreel_frame* frame, int back) {
  int at = frame->stacktop - back;
  return frame->stacktop < 0 || at < frame->code->co_nlocalsplus ? nullptr : frame->localsplus[at];
}

// The opcode that is about to run, with its whole argument: EXTENDED_ARG has an event, what it extends has none.
int decode(torchreel_frame* frame, int& argument) {
  PyObject* bytes = PyCode_GetCode(frame->code);  // without specialisations; kept by the code object
  if (bytes == nullptr) return -1;
  const auto* code = reinterpret_cast<const unsigned char*>(PyBytes_AS_STRING(bytes));
  Py_ssize_t at = 2 * (frame->prev_instr - _PyCode_CODE(frame->code));
  argument = code[at + 1];
  while (code[at] == EXTENDED_ARG) {
    at += 2;
    argument = argument << 8 | code[at + 1];
  }
  int opcode = code[at];
  Py_DECREF(bytes);
  return opcode;
}

bool is_atom(PyObject* object) {
  return object == Py_None || PyBool_Check(object) || PyLong_CheckExact(object) || PyFloat_CheckExact(object) ||
         PyUnicode_CheckExact(object);
}

bool is_key(PyObject* object) { return PyUnicode_CheckExact(object) || PyLong_CheckExact(object); }

bool runs_at_once(PyObject* function) {
  constexpr int kLater = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR | CO_ITERABLE_COROUTINE;
  auto* code = reinterpret_cast<PyCodeObject*>(reinterpret_cast<PyFunctionObject*>(function)->func_code);
  return (code->co_flags & kLater) == 0;
}

bool is_python_function(PyObject* callee) {
  if (PyMethod_Check(callee)) callee = PyMethod_GET_FUNCTION(callee);
  return PyFunction_Check(callee) && runs_at_once(callee);
}

// Whether a class statement made this type: those share one deallocator, which C types do not name.
bool is_of_python(PyTypeObject* type) {
  static destructor mark = reinterpret_cast<PyTypeObject*>(
                               PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyType_Type), "s(){}", "sample"))
                               ->tp_dealloc;
  return type->tp_dealloc == mark;
}

// Whether nobody but the follower has it, in Python or in C++.
bool is_left(PyObject* object) {
  if (Py_REFCNT(object) != 1) return false;
  return !THPVariable_Check(object) || THPVariable_Unpack(object).use_count() <= 1;
}

}  // namespace

Follower::Follower(py::object rules, const std::vector<int>& opcodes, const py::iterable& plain, std::string own_files)
    : rules_(std::move(rules)), own_files_(std::move(own_files)) {
  op_ = rules_.attr("op");
  result_ = rules_.attr("result");
  enter_ = rules_.attr("enter");
  refuse_ = rules_.attr("refuse");
  for (int opcode : opcodes) wanted_[static_cast<size_t>(opcode)] = true;
  for (const auto& type : plain) plain_.insert(reinterpret_cast<PyTypeObject*>(type.ptr()));
}

Follower::~Follower() { close(); }

void Follower::close() {
  stopped_ = true;
  auto release = [](auto& all) {
    auto held = std::exchange(all, {});
    for (PyObject* object : held) Py_DECREF(object);
  };
  fresh_.clear();
  release(order_);
  release(generators_);
  release(given_);
  release(entered_);
  for (const auto& [code, own] : std::exchange(own_, {})) Py_DECREF(reinterpret_cast<PyObject*>(code));
  asked_.clear();
  kept_.clear();
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

void Follower::make(PyObject* object) {
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

// What a function that is not followed gives back, it made.
void Follower::make_tensors(PyObject* value) {
  if (THPVariable_Check(value)) return make(value);
  if (!PyTuple_CheckExact(value) && !PyList_CheckExact(value)) return;
  make(value);
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); i++) make_tensors(PySequence_Fast_GET_ITEM(value, i));
}

void Follower::let_go_of_recent() {
  constexpr size_t kRecent = 48;
  sweep(order_.size() > kRecent ? order_.size() - kRecent : 0);
}

// A generator that nobody else has ends now, as it would without us: its `finally` may have effects.
void Follower::end_generators() {
  for (size_t i = generators_.size(); i-- > 0;) {
    PyObject* one = generators_[i];
    if (Py_REFCNT(one) != 1) continue;
    auto* code = reinterpret_cast<PyCodeObject*>(reinterpret_cast<PyGenObject*>(one)->gi_code);
    auto frame = py::reinterpret_steal<py::object>(PyObject_GetAttrString(one, "gi_frame"));
    bool has_end = frame && !frame.is_none() && PyBytes_GET_SIZE(code->co_exceptiontable) > 0;
    frame = py::object();
    if (has_end) refuse_("lets go of a generator before its end", py::none());  // whose `finally` is not followed here
    generators_.erase(generators_.begin() + static_cast<ptrdiff_t>(i));
    fresh_.erase(one);
    Py_DECREF(one);
    if (i > generators_.size()) i = generators_.size();
  }
}

py::list Follower::generators() const {
  py::list all;
  for (PyObject* one : generators_) all.append(py::handle(one));
  return all;
}

// Lets go of those that nobody else has: they would be gone by now.
void Follower::sweep(size_t from) {
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

void Follower::give(PyObject* object) {
  if (given_.insert(object).second) Py_INCREF(object);
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
    if (result != nullptr) self->make_tensors(result);
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
    if (self->stopped_) self->let_go();
    return failed;
  } catch (py::error_already_set& error) {
    error.restore();
    return -1;
  }
}

// What the call has made dies from now on when it does without us.
void Follower::let_go() {
  fresh_.clear();
  for (auto* all : {&order_, &generators_}) {
    auto held = std::exchange(*all, {});
    for (PyObject* object : held) Py_DECREF(object);
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
    callee = peek_at(frame, argument + 2);
    if (callee == nullptr) callee = peek_at(frame, argument + 1);
  } else if (opcode == CALL_FUNCTION_EX) {
    callee = peek_at(frame, (argument & 1) != 0 ? 3 : 2);
  }
  if (callee == nullptr) return;
  PyObject* function = PyMethod_Check(callee) ? PyMethod_GET_FUNCTION(callee) : callee;
  bool is_python = PyFunction_Check(function) || (PyType_Check(function) && is_of_python((PyTypeObject*)function));
  if (is_python && !entered_.contains(function)) callee_ = callee;
}

// Whether a set or a dict that is made has an argument of the call as a key, which may be another object each time.
bool Follower::has_given_key(torchreel_frame* frame, int opcode, int argument) const {
  int step = opcode == BUILD_MAP ? 2 : 1;
  int count = opcode == BUILD_MAP || opcode == BUILD_SET ? argument : 1;
  int first = opcode == MAP_ADD ? 2 : opcode == BUILD_MAP ? 2 : 1;
  for (int i = 0; i < count; i++) {
    PyObject* key = peek_at(frame, first + i * step);
    if (key != nullptr && (is_given(key) || (PyTuple_Check(key) && PyTuple_GET_SIZE(key) > 0 && !is_atom(key)))) {
      return true;
    }
  }
  return false;
}

// A Python function begins, or a generator goes on.
int Follower::take_call(PyFrameObject* object) {
  auto* mirror = as_mirror(object);
  auto* frame = mirror->frame;
  PyCodeObject* code = frame->code;
  mirror->trace_lines = 0;
  callee_ = nullptr;
  for (const auto& one : passed_over_) {
    if (one.ptr() == reinterpret_cast<PyObject*>(code)) {
      passing_ = object;
      return 0;
    }
  }
  if (is_own(code)) {
    rules_.attr("enter_own")(py::handle(reinterpret_cast<PyObject*>(object)));
    return 0;
  }
  mirror->trace_opcodes = 1;
  constexpr int kCoroutine = CO_COROUTINE | CO_ASYNC_GENERATOR;
  if ((code->co_flags & kCoroutine) != 0) {
    refuse_("runs a coroutine", py::handle(reinterpret_cast<PyObject*>(object)));
    return 0;
  }
  PyObject* function = frame->function;
  if (!is_fresh(function) && entered_.insert(function).second) {
    Py_INCREF(function);
    asks_++;
    enter_(py::handle(function), py::handle(reinterpret_cast<PyObject*>(object)));
  }
  if (!expected_.empty() && code->co_argcount > 0) {
    PyObject* made = frame->localsplus[0];
    if (made != nullptr && PyCell_Check(made)) made = PyCell_GET(made);
    if (made != nullptr && reinterpret_cast<PyObject*>(Py_TYPE(made)) == expected_.back().ptr()) {
      make(made);
      expected_.pop_back();
    }
  }
  constexpr unsigned char kCell = 0x40;  // CO_FAST_CELL
  const auto* kinds = reinterpret_cast<const unsigned char*>(PyBytes_AS_STRING(code->co_localspluskinds));
  for (int i = 0; i < code->co_nlocalsplus; i++) {
    PyObject* local = frame->localsplus[i];
    if ((kinds[i] & kCell) != 0 && local != nullptr && PyCell_Check(local)) make(local);  // of this very frame
  }
  if ((code->co_flags & CO_VARKEYWORDS) != 0) {  // a dict of this very call
    PyObject* keywords =
        frame->localsplus[code->co_argcount + code->co_kwonlyargcount + ((code->co_flags & CO_VARARGS) != 0)];
    if (keywords != nullptr && PyCell_Check(keywords)) keywords = PyCell_GET(keywords);
    if (keywords != nullptr && PyDict_CheckExact(keywords)) make(keywords);
  }
  if (adopts_) adopt(frame);
  return 0;
}

void Follower::adopt(torchreel_frame* frame) {
  auto* from = as_mirror(reinterpret_cast<PyFrameObject*>(adopts_.ptr()))->frame;
  if (frame->previous != from) return;
  py::object adopted = rules_.attr("adopt");
  int count = frame->code->co_argcount + ((frame->code->co_flags & CO_VARARGS) != 0);
  for (int i = 0; i < count; i++) {
    PyObject* local = frame->localsplus[i];
    if (local != nullptr && PyCell_Check(local)) local = PyCell_GET(local);
    if (local != nullptr) adopted(py::handle(local));
  }
}

int Follower::take_opcode(PyFrameObject* object) {
  auto* mirror = as_mirror(object);
  auto* frame = mirror->frame;
  events_++;
  if (!generators_.empty()) end_generators();
  PyObject* told = mirror->trace;
  if (told != nullptr) {
    mirror->trace = nullptr;
    auto keep = py::reinterpret_steal<py::object>(told);
    PyObject* top = peek_at(frame, 1);
    if (top != nullptr && told == make_mark()) {
      make(top);
    } else if (top != nullptr) {
      asks_++;
      result_(keep, py::handle(top));
    }
  }
  int argument, opcode = decode(frame, argument);
  if (opcode < 0) return -1;
  note_callee(frame, opcode, argument);
  if (!wanted_[static_cast<size_t>(opcode)] || stopped_) return 0;
  if (opcode == KW_NAMES) {
    names_ = PyTuple_GET_ITEM(frame->code->co_consts, argument);
    return 0;
  }
  Pair to_note{nullptr, nullptr};
  switch (memo ? answer(frame, opcode, argument, to_note) : kAsk) {
    case kNothing: return 0;
    case kMake:
      Py_INCREF(make_mark());
      mirror->trace = make_mark();
      return 0;
    case kAsk: break;
  }
  int failed = ask(object, opcode, argument);
  if (to_note.holder != nullptr && mirror->trace == nullptr && asked_.insert(to_note).second) {
    // As long as it is kept, no other object has its address.
    kept_.push_back(py::reinterpret_borrow<py::object>(static_cast<PyObject*>(const_cast<void*>(to_note.holder))));
  }
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

bool Follower::is_container_of_call(PyObject* object) const {
  return (PyList_CheckExact(object) || PyDict_CheckExact(object) || PySet_CheckExact(object)) && is_fresh(object);
}

Follower::Answer Follower::answer_read(torchreel_frame* frame, int opcode, int argument, Pair& to_note) {
  PyObject* object = peek_at(frame, 1);
  if (object == nullptr || THPVariable_Check(object) || PyType_Check(object) || Py_IS_TYPE(object, &PySuper_Type)) {
    return kAsk;
  }
  PyObject* name = PyTuple_GET_ITEM(frame->code->co_names, argument);
  if (is_atom(object)) return kNothing;  // whose attributes cannot be set
  // What is read of a fresh object follows from the call, but for what its class has.
  Pair pair{is_fresh(object) ? reinterpret_cast<PyObject*>(Py_TYPE(object)) : object, name};
  if (is_fresh(object) && PyMethod_Check(object)) return kAsk;
  if (is_given(object)) return kAsk;
  if (asked_.contains(pair)) return kNothing;
  to_note = pair;
  return kAsk;
}

// A call of a function of Python: what it does is seen when it runs.
Follower::Answer Follower::answer_call(torchreel_frame* frame, int argument) const {
  PyObject* callee = peek_at(frame, argument + 2);
  if (callee == nullptr) callee = peek_at(frame, argument + 1);
  return callee != nullptr && is_python_function(callee) ? kNothing : kAsk;
}

// What needs no rule. `to_note` is what needs none the next time, if the rule has nothing to say to the result.
Follower::Answer Follower::answer(torchreel_frame* frame, int opcode, int argument, Pair& to_note) {
  PyObject* top = peek_at(frame, 1);
  switch (opcode) {
    case LOAD_GLOBAL: {
      Pair pair{frame->globals, PyTuple_GET_ITEM(frame->code->co_names, argument >> 1)};
      if (asked_.contains(pair)) return kNothing;
      to_note = pair;
      return kAsk;
    }
    case LOAD_DEREF:
    case LOAD_CLASSDEREF: return is_fresh(frame->localsplus[argument]) ? kNothing : kAsk;
    case LOAD_ATTR:
    case LOAD_METHOD: return answer_read(frame, opcode, argument, to_note);
    case UNARY_NOT:
    case POP_JUMP_FORWARD_IF_TRUE:
    case POP_JUMP_FORWARD_IF_FALSE:
    case POP_JUMP_BACKWARD_IF_TRUE:
    case POP_JUMP_BACKWARD_IF_FALSE:
    case JUMP_IF_TRUE_OR_POP:
    case JUMP_IF_FALSE_OR_POP: return top != nullptr && (is_plain(top) || is_container_of_call(top)) ? kNothing : kAsk;
    case COMPARE_OP:
    case BINARY_OP: {
      PyObject* left = peek_at(frame, 2);
      return top != nullptr && left != nullptr && is_atom(top) && is_atom(left) && !(PyUnicode_Check(left)) ? kNothing
                                                                                                            : kAsk;
    }
    case IS_OP: {
      // Plain values are guarded by value: which of two equal ones it is, nobody knows in another call.
      PyObject* left = peek_at(frame, 2);
      auto settled = [&](PyObject* one) { return one != nullptr && !THPVariable_Check(one) && !is_given(one); };
      auto single = [](PyObject* one) { return one == Py_None || PyBool_Check(one) || one == Py_Ellipsis; };
      auto by_value = [](PyObject* one) { return PyTuple_Check(one) || PyFloat_Check(one) || PyLong_Check(one); };
      if (!settled(top) || !settled(left)) return kAsk;
      if (by_value(top) && by_value(left) && !single(top) && !single(left)) return kAsk;
      return single(top) || single(left) || !is_plain(top) || !is_plain(left) ? kNothing : kAsk;
    }
    case MAP_ADD:
    case SET_ADD: return has_given_key(frame, opcode, argument) ? kAsk : kNothing;
    case BUILD_SET:
    case BUILD_MAP: return has_given_key(frame, opcode, argument) ? kAsk : kMake;
    case BUILD_LIST:
    case BUILD_CONST_KEY_MAP:
    case MAKE_FUNCTION: return kMake;
    case GET_ITER: return top != nullptr && (PyTuple_CheckExact(top) || PyRange_Check(top)) ? kMake : kAsk;
    case FOR_ITER:
      return top != nullptr && is_fresh(top) && !PyObject_IsInstance(top, THPVariableClass) ? kNothing : kAsk;
    case UNPACK_SEQUENCE: return top != nullptr && PyTuple_CheckExact(top) ? kNothing : kAsk;
    case STORE_SUBSCR: {
      PyObject* holder = peek_at(frame, 2);
      return holder != nullptr && is_container_of_call(holder) && is_atom(top) ? kNothing : kAsk;
    }
    case BINARY_SUBSCR: {
      PyObject* holder = peek_at(frame, 2);
      if (holder == nullptr || top == nullptr || !is_key(top)) return kAsk;
      return PyTuple_CheckExact(holder) || is_container_of_call(holder) ? kNothing : kAsk;
    }
    case CALL: {
      Answer found = answer_call(frame, argument);
      if (found == kNothing) names_ = nullptr;
      return found;
    }
    default: return kAsk;
  }
}

namespace {

PyFrameObject* frame_of(const py::handle& object) {
  if (!PyFrame_Check(object.ptr())) throw py::type_error("A frame is needed.");
  return reinterpret_cast<PyFrameObject*>(object.ptr());
}

py::object or_null(PyObject* found) {
  return py::reinterpret_borrow<py::object>(found == nullptr ? null_mark() : found);
}

// Of attribute lookup of this type: C's generic one (1), that and then Python's __getattr__ (2), or another one (0).
int lookup_kind(PyTypeObject* type) {
  getattrofunc get = type->tp_getattro;
  if (get == PyObject_GenericGetAttr || get == PyModule_Type.tp_getattro || get == PyType_Type.tp_getattro) return 1;
  static PyObject* name = PyUnicode_InternFromString("__getattribute__");
  PyObject* found = _PyType_Lookup(type, name);
  for (PyTypeObject* known : {&PyBaseObject_Type, &PyModule_Type, &PyType_Type}) {
    if (found == _PyType_Lookup(known, name)) return 2;
  }
  return 0;
}

PyTypeObject* type_of(const py::handle& type) {
  if (!PyType_Check(type.ptr())) throw py::type_error("A type is needed.");
  return reinterpret_cast<PyTypeObject*>(type.ptr());
}

}  // namespace

void bind_follower(py::module_& module) {
  module.attr("NULL") = py::handle(null_mark());
  py::class_<Follower>(module, "Follower")
      .def(py::init<py::object, const std::vector<int>&, const py::iterable&, std::string>())
      .def_static("is_impossible", &Follower::is_impossible)
      .def("run", &Follower::run)
      .def("stop", &Follower::stop)
      .def("close", &Follower::close)
      .def("make", [](Follower& self, const py::handle& object) { self.make(object.ptr()); })
      .def("is_fresh", [](const Follower& self, const py::handle& object) { return self.is_fresh(object.ptr()); })
      .def("give", [](Follower& self, const py::handle& object) { self.give(object.ptr()); })
      .def("is_given", [](const Follower& self, const py::handle& object) { return self.is_given(object.ptr()); })
      .def("let_go_of_recent", &Follower::let_go_of_recent)
      .def("pass_over", &Follower::pass_over)
      .def("expect", &Follower::expect)
      .def_property_readonly("generators", &Follower::generators)
      .def("adopt_from", [](Follower& self, const py::handle& frame) { self.adopt_from(frame.ptr()); })
      .def("take_names", &Follower::take_names)
      .def_readwrite("memo", &Follower::memo)
      .def_property_readonly("events", &Follower::events)
      .def_property_readonly("asked", &Follower::asked);
  module.def("peek", [](const py::handle& frame, int back) {
    return or_null(peek_at(as_mirror(frame_of(frame))->frame, back));
  });
  module.def("function_of",
             [](const py::handle& frame) { return or_null(as_mirror(frame_of(frame))->frame->function); });
  module.def("local", [](const py::handle& frame, int index) {
    return or_null(as_mirror(frame_of(frame))->frame->localsplus[index]);
  });
  module.def("type_lookup", [](const py::handle& type, const py::handle& name) {
    return or_null(_PyType_Lookup(type_of(type), name.ptr()));
  });
  module.def("lookup_kind", [](const py::handle& type) { return lookup_kind(type_of(type)); });
  module.def("is_of_python", [](const py::handle& type) { return is_of_python(type_of(type)); });
  // Without telling those who watch what Python asks of tensors.
  module.def("gradient_of", [](const py::handle& tensor) {
    const c10::TensorImpl* found = THPVariable_Unpack(tensor.ptr()).unsafeGetTensorImpl();
    return py::reinterpret_steal<py::object>(THPVariable_Wrap(found->grad()));
  });
  module.def("type_flags", [](const py::handle& type) { return type_of(type)->tp_flags; });
}

}  // namespace torchreel::graphs
