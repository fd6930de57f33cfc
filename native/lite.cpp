#include "lite.h"

#include <pybind11/stl.h>
#include <torch/csrc/jit/mobile/code.h>
#include <torch/csrc/jit/mobile/function.h>
#include <torch/csrc/jit/mobile/module.h>

namespace py = pybind11;

namespace torchreel {

// Both texts are torch's own, from the debug maps of the model's file: the hierarchy of modules, and the traceback.
// Its classes are known to pybind11 from torch's own binding of them.
void bind_lite(py::module_& module) {
  module.def("lite_place", [](const torch::jit::mobile::Module& lite, int64_t handle) {
    return py::make_tuple(lite.getModuleHierarchy(handle), lite.getCallStack(handle));
  });
  module.def("lite_handles", [](const torch::jit::mobile::Module& lite) {
    std::vector<int64_t> handles;
    for (const auto& method : lite.get_methods()) {
      for (const auto& handle : method.function().get_code().debug_handles_) handles.push_back(handle);
    }
    return handles;
  });
}

}  // namespace torchreel
