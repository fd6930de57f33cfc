// Single kernels for Python: for tests and benchmarks, which look at one op at a time.
#pragma once

#include <pybind11/pybind11.h>

namespace torchreel::graphs {

void bind_kernels(pybind11::module_& module);

}  // namespace torchreel::graphs
