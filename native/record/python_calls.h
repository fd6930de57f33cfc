// Calls of Python functions and of nn.Modules as events, by the hook through which CPython evaluates every frame of
// every thread. It is cheaper than a profile function, and sees Python's functions only, none of C's.
#pragma once

#include <Python.h>

namespace torchreel {

// All of these need the GIL.
// Calls of Python functions, if `python`; of modules, if `module_call` is not null: it is the code of
// torch.nn.Module.__call__; `name_module(module)` gives a name's id; `module_type` is torch.nn.Module, whose forward()
// may be called directly.
void watch_calls(bool python, PyObject* module_call, PyObject* name_module, PyObject* module_type);
void unwatch_calls();
// While paused no call begins; those that have begun still end.
void pause_calls(bool paused);
// What this thread calls in Python is not the program's, until it is told again.
void do_own_work(bool begins);
// Python's garbage collector begins or ends its work on this thread: a call of its own.
void collects_garbage(bool begins);
// The module is gone, or its path has changed: ask again when it is next seen.
void forget_module(PyObject* module);

}  // namespace torchreel
