// Reads a frame of CPython 3.11 while a trace function runs: its opcode and its operands. See follower.h for why the
// operands lie there. All of it needs the GIL, and gives borrowed references.
#pragma once

#include <Python.h>
#include <opcode.h>

#include "cpython/interpreter.h"

namespace torchreel::graphs {

inline torchreel_frame_object* as_mirror(PyFrameObject* frame) {
  return reinterpret_cast<torchreel_frame_object*>(frame);
}

// The operand that is so far from the top of the stack, 1 for the top; null if there is none.
inline PyObject* peek_at(torchreel_frame* frame, int back) {
  int at = frame->stacktop - back;
  return frame->stacktop < 0 || at < frame->code->co_nlocalsplus ? nullptr : frame->localsplus[at];
}

// What CALL is about to call: with an argument `self` below it or not.
inline PyObject* callee_at(torchreel_frame* frame, int arguments) {
  PyObject* callee = peek_at(frame, arguments + 2);
  return callee != nullptr ? callee : peek_at(frame, arguments + 1);
}

// A local variable, or what the cell holds that it lies in.
inline PyObject* local_at(torchreel_frame* frame, int index) {
  PyObject* local = frame->localsplus[index];
  return local != nullptr && PyCell_Check(local) ? PyCell_GET(local) : local;
}

// The opcode that is about to run, with its whole argument: EXTENDED_ARG has an event, what it extends has none.
// -1 with a Python error if there is no memory.
inline int decode(torchreel_frame* frame, int& argument) {
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

}  // namespace torchreel::graphs
