// Compiled at build time, and never linked: does interpreter.h mirror the frames of this CPython?
#define Py_BUILD_CORE 1
// clang-format off: the private header needs the public one before it
#include "cpython/interpreter.h"
#include <internal/pycore_frame.h>
#include <stddef.h>
// clang-format on

#define SAME(ours, theirs) \
  _Static_assert(offsetof(struct torchreel_frame, ours) == offsetof(_PyInterpreterFrame, theirs), #theirs)
SAME(function, f_func);
SAME(code, f_code);
SAME(frame_object, frame_obj);
SAME(previous, previous);
SAME(prev_instr, prev_instr);
SAME(stacktop, stacktop);
SAME(globals, f_globals);
SAME(owner, owner);
SAME(localsplus, localsplus);
_Static_assert(FRAME_OWNED_BY_GENERATOR == 1, "owner of a generator's frame");

#define SAME_OBJECT(ours, theirs) \
  _Static_assert(offsetof(struct torchreel_frame_object, ours) == offsetof(PyFrameObject, theirs), #theirs)
SAME_OBJECT(back, f_back);
SAME_OBJECT(frame, f_frame);
SAME_OBJECT(trace, f_trace);
SAME_OBJECT(trace_lines, f_trace_lines);
SAME_OBJECT(trace_opcodes, f_trace_opcodes);
