// What the lite interpreter's modules know of their debug handles.
#pragma once

#include <pybind11/pybind11.h>

namespace torchreel {

void bind_lite(pybind11::module_& module);

}  // namespace torchreel
