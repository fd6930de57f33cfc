// CPython 3.11's interpreter frames, as far as the recorder reads them: a mirror of private structures that
// interpreter_check.c checks against CPython's own headers at build time.
#pragma once

#include <Python.h>

#if PY_VERSION_HEX < 0x030b0000 || PY_VERSION_HEX >= 0x030c0000
#error "torchreel reads the frames of CPython 3.11; another version needs its own mirror here."
#endif

#ifdef __cplusplus
extern "C" {
#endif

struct torchreel_frame {
  PyObject* function;
  PyObject* globals;
  PyObject* builtins;
  PyObject* locals;
  PyCodeObject* code;
  PyFrameObject* frame_object;
  struct torchreel_frame* previous;
  _Py_CODEUNIT* prev_instr;
  int stacktop;
  char is_entry;
  char owner;
  PyObject* localsplus[1];
};

struct torchreel_frame_object {
  PyObject_HEAD PyFrameObject* back;
  struct torchreel_frame* frame;
  PyObject* trace;
  int lineno;
  char trace_lines;
  char trace_opcodes;
};

#ifdef __cplusplus
}

// What evaluates a frame.
using EvalFunction = PyObject* (*)(PyThreadState*, torchreel_frame*, int);

// Replace the function that evaluates frames in all threads; returns the one before. Needs the GIL.
inline EvalFunction set_eval(EvalFunction hook) {
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  auto before = reinterpret_cast<EvalFunction>(_PyInterpreterState_GetEvalFrameFunc(interpreter));
  _PyInterpreterState_SetEvalFrameFunc(interpreter, reinterpret_cast<_PyFrameEvalFunction>(hook));
  return before;
}

// Python's own.
inline PyObject* eval_by_default(PyThreadState* state, torchreel_frame* frame, int throwing) {
  return _PyEval_EvalFrameDefault(state, reinterpret_cast<struct _PyInterpreterFrame*>(frame), throwing);
}

// The innermost frame of a thread; only that thread may call this, with or without the GIL.
inline torchreel_frame* innermost_frame(PyThreadState* state) {
  return state->cframe == nullptr ? nullptr : reinterpret_cast<torchreel_frame*>(state->cframe->current_frame);
}

// A frame that is still being set up has no line yet.
inline bool is_incomplete(const torchreel_frame* frame) {
  constexpr char kOwnedByGenerator = 1;
  return frame->owner != kOwnedByGenerator &&
         frame->prev_instr < _PyCode_CODE(frame->code) + frame->code->_co_firsttraceable;
}
#endif
