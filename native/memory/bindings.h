// The binding of CPU memory: its history, its heap, its snapshot.
#pragma once

#include <pybind11/pybind11.h>

namespace torchreel {

void bind_memory(pybind11::module_& module);

}  // namespace torchreel
