#include "lite.h"

#include <torch/csrc/jit/mobile/module.h>

namespace py = pybind11;

namespace torchreel {

// Both texts are torch's own, from the debug maps of the model's file: the hierarchy of modules, and the traceback.
// Its classes are known to pybind11 from torch's own binding of them.
void bind_lite(py::module_& module) {
  module.def("lite_place", [](const torch::jit::mobile::Module& lite, int64_t handle) {
    return py::make_tuple(lite.getModuleHierarchy(handle), lite.getCallStack(handle));
  });
}

}  // namespace torchreel
