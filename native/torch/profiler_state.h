// What torch itself, its compiled code and programs ask to know whether a profiler runs. It is a state of the thread,
// apart from the observers: an observer alone is not asked for, and the ranges that depend on it are not opened.
#pragma once

#include <Python.h>

namespace torchreel {

// This thread, and those that torch goes on to from it, see a profiler: torch.autograd._profiler_enabled() is true.
// With `shapes` it reads as one that wants the arguments of calls. Returns whether it was shown: not where one of
// torch's own runs already. Does not require the GIL.
bool show_profiler(bool shapes);
// The same thread again. On another one, the profiler that was shown last reads as disabled from now on.
void hide_profiler();

// Ranges of torch._C._profiler._RecordFunctionFast are opened on every thread, or no longer, also where no profiler of
// torch's runs. Needs the GIL.
void hear_fast_ranges(PyTypeObject* type);
void ignore_fast_ranges();

// Two settings of torch's profiler: whether a trace has arrows from forward to backward calls, and whether the values
// of arguments are kept that are no tensors.
bool draws_backward_arrows();
bool keeps_values();

}  // namespace torchreel
