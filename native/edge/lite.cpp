// torchreel._lite: what the lite interpreter's modules know of their debug handles. An extension of its own, because
// torch's headers of that interpreter take longer to compile than all else that a recording needs.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/jit/mobile/code.h>
#include <torch/csrc/jit/mobile/function.h>
#include <torch/csrc/jit/mobile/module.h>

namespace py = pybind11;

// Both texts of a location are torch's own, from the debug maps of the model's file: the hierarchy of modules, and the
// traceback. The classes are known to pybind11 from torch's own binding of them.
PYBIND11_MODULE(_lite, module) {
  module.def("location", [](const torch::jit::mobile::Module& lite, int64_t handle) {
    return py::make_tuple(lite.getModuleHierarchy(handle), lite.getCallStack(handle));
  });
  module.def("ops", [](const torch::jit::mobile::Module& lite) {
    std::vector<std::pair<int64_t, int>> ops;
    for (const auto& method : lite.get_methods()) {
      const auto& code = method.function().get_code();
      for (size_t pc = 0; pc < code.instructions_.size() && pc < code.debug_handles_.size(); pc++) {
        const auto& instruction = code.instructions_[pc];
        if (instruction.op != torch::jit::OP && instruction.op != torch::jit::OPN) continue;
        auto op = static_cast<size_t>(instruction.X);
        int given = op < code.operator_input_sizes_.size() ? code.operator_input_sizes_[op] : -1;
        ops.emplace_back(code.debug_handles_[pc], given);
      }
    }
    return ops;
  });
}
