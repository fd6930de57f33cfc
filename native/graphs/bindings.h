// The parts of torchreel._graphs that are bound in files of their own. bindings.cpp calls each once, at import.
#pragma once

#include <pybind11/pybind11.h>

namespace torchreel::graphs {

// Single kernels, for tests and benchmarks that look at one op at a time.
void bind_kernels(pybind11::module_& module);
// Guards on Python, and what they ask of autograd's graph.
void bind_guards(pybind11::module_& module);
void bind_follower(pybind11::module_& module);

}  // namespace torchreel::graphs
