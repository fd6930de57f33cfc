#include "graphs/guards/opcode_answers.h"

#include <opcode.h>
#include <torch/csrc/autograd/python_variable.h>

#include "graphs/guards/frames.h"

namespace py = pybind11;

namespace torchreel::graphs {

namespace {

bool has_fixed_attributes(PyObject* object) {
  return object == Py_None || PyBool_Check(object) || PyLong_CheckExact(object) || PyFloat_CheckExact(object) ||
         PyUnicode_CheckExact(object);
}

bool is_key(PyObject* object) { return PyUnicode_CheckExact(object) || PyLong_CheckExact(object); }

// Of which there is one object: None, True, False, Ellipsis.
bool is_single(PyObject* object) { return object == Py_None || PyBool_Check(object) || object == Py_Ellipsis; }

bool runs_at_once(PyObject* function) {
  constexpr int kLater = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR | CO_ITERABLE_COROUTINE;
  auto* code = reinterpret_cast<PyCodeObject*>(reinterpret_cast<PyFunctionObject*>(function)->func_code);
  return (code->co_flags & kLater) == 0;
}

bool is_python_function(PyObject* callee) {
  if (PyMethod_Check(callee)) callee = PyMethod_GET_FUNCTION(callee);
  return PyFunction_Check(callee) && runs_at_once(callee);
}

using Answer = OpcodeAnswers::Answer;

Answer nothing_if(bool known) { return known ? OpcodeAnswers::kNothing : OpcodeAnswers::kAsk; }

}  // namespace

void OpcodeAnswers::note(const Read& read) {
  if (!asked_.insert(read).second) return;
  // As long as it is kept, no other object has its address.
  kept_.push_back(py::reinterpret_borrow<py::object>(static_cast<PyObject*>(const_cast<void*>(read.holder))));
}

void OpcodeAnswers::clear() {
  asked_.clear();
  kept_.clear();
}

Answer OpcodeAnswers::answer_once(const Read& read, Read& to_note) const {
  if (asked_.contains(read)) return kNothing;
  to_note = read;
  return kAsk;
}

Answer OpcodeAnswers::answer_attribute(torchreel_frame* frame, int argument, Read& to_note) const {
  PyObject* object = peek_at(frame, 1);
  if (object == nullptr || THPVariable_Check(object) || PyType_Check(object) || Py_IS_TYPE(object, &PySuper_Type)) {
    return kAsk;
  }
  if (has_fixed_attributes(object)) return kNothing;  // its attributes cannot be set
  bool is_fresh = objects_.is_fresh(object);
  if ((is_fresh && PyMethod_Check(object)) || objects_.is_given(object)) return kAsk;
  // What is read of a fresh object follows from the call, except for what its class has.
  PyObject* holder = is_fresh ? reinterpret_cast<PyObject*>(Py_TYPE(object)) : object;
  return answer_once({holder, PyTuple_GET_ITEM(frame->code->co_names, argument)}, to_note);
}

Answer OpcodeAnswers::answer_truth(PyObject* value) const {
  return nothing_if(value != nullptr && (objects_.is_plain(value) || objects_.is_fresh_container(value)));
}

Answer OpcodeAnswers::answer_operator(torchreel_frame* frame) const {
  PyObject *right = peek_at(frame, 1), *left = peek_at(frame, 2);
  return nothing_if(right != nullptr && left != nullptr && has_fixed_attributes(right) && has_fixed_attributes(left) &&
                    !PyUnicode_Check(left));
}

// Plain values are guarded by value: whether two equal ones are one object may differ from call to call.
Answer OpcodeAnswers::answer_identity(torchreel_frame* frame) const {
  PyObject *right = peek_at(frame, 1), *left = peek_at(frame, 2);
  auto settled = [&](PyObject* one) { return one != nullptr && !THPVariable_Check(one) && !objects_.is_given(one); };
  auto by_value = [](PyObject* one) { return PyTuple_Check(one) || PyFloat_Check(one) || PyLong_Check(one); };
  if (!settled(right) || !settled(left)) return kAsk;
  if (is_single(right) || is_single(left)) return kNothing;
  if (by_value(right) && by_value(left)) return kAsk;
  return nothing_if(!objects_.is_plain(right) || !objects_.is_plain(left));
}

Answer OpcodeAnswers::answer_subscript(torchreel_frame* frame) const {
  PyObject *key = peek_at(frame, 1), *holder = peek_at(frame, 2);
  if (holder == nullptr || key == nullptr || !is_key(key)) return kAsk;
  return nothing_if(PyTuple_CheckExact(holder) || objects_.is_fresh_container(holder));
}

Answer OpcodeAnswers::answer_store(torchreel_frame* frame) const {
  PyObject *key = peek_at(frame, 1), *holder = peek_at(frame, 2);
  return nothing_if(holder != nullptr && objects_.is_fresh_container(holder) && has_fixed_attributes(key));
}

// A call of a Python function: the follower sees what it does when it runs.
Answer OpcodeAnswers::answer_call(torchreel_frame* frame, int argument) const {
  PyObject* callee = callee_at(frame, argument);
  return nothing_if(callee != nullptr && is_python_function(callee));
}

// Whether a new set or dict has an argument of the call as a key, which may be another object each time.
bool OpcodeAnswers::has_given_key(torchreel_frame* frame, int opcode, int argument) const {
  int step = opcode == BUILD_MAP ? 2 : 1;
  int count = opcode == BUILD_MAP || opcode == BUILD_SET ? argument : 1;
  int first = opcode == MAP_ADD || opcode == BUILD_MAP ? 2 : 1;
  for (int i = 0; i < count; i++) {
    PyObject* key = peek_at(frame, first + i * step);
    if (key == nullptr) continue;
    if (objects_.is_given(key) || (PyTuple_Check(key) && PyTuple_GET_SIZE(key) > 0)) return true;
  }
  return false;
}

Answer OpcodeAnswers::answer(torchreel_frame* frame, int opcode, int argument, Read& to_note) const {
  PyObject* top = peek_at(frame, 1);
  switch (opcode) {
    case LOAD_GLOBAL:
      return answer_once({frame->globals, PyTuple_GET_ITEM(frame->code->co_names, argument >> 1)}, to_note);
    case LOAD_DEREF:
    case LOAD_CLASSDEREF: return nothing_if(objects_.is_fresh(frame->localsplus[argument]));
    case LOAD_ATTR:
    case LOAD_METHOD: return answer_attribute(frame, argument, to_note);
    case UNARY_NOT:
    case POP_JUMP_FORWARD_IF_TRUE:
    case POP_JUMP_FORWARD_IF_FALSE:
    case POP_JUMP_BACKWARD_IF_TRUE:
    case POP_JUMP_BACKWARD_IF_FALSE:
    case JUMP_IF_TRUE_OR_POP:
    case JUMP_IF_FALSE_OR_POP: return answer_truth(top);
    case COMPARE_OP:
    case BINARY_OP: return answer_operator(frame);
    case IS_OP: return answer_identity(frame);
    case MAP_ADD:
    case SET_ADD: return has_given_key(frame, opcode, argument) ? kAsk : kNothing;
    case BUILD_SET:
    case BUILD_MAP: return has_given_key(frame, opcode, argument) ? kAsk : kMake;
    case BUILD_LIST:
    case BUILD_CONST_KEY_MAP:
    case MAKE_FUNCTION: return kMake;
    case GET_ITER: return top != nullptr && (PyTuple_CheckExact(top) || PyRange_Check(top)) ? kMake : kAsk;
    case FOR_ITER:
      return nothing_if(top != nullptr && objects_.is_fresh(top) && !PyObject_IsInstance(top, THPVariableClass));
    case UNPACK_SEQUENCE: return nothing_if(top != nullptr && PyTuple_CheckExact(top));
    case STORE_SUBSCR: return answer_store(frame);
    case BINARY_SUBSCR: return answer_subscript(frame);
    case CALL: return answer_call(frame, argument);
    default: return kAsk;
  }
}

}  // namespace torchreel::graphs
