// Kernels for clusters: the generated one, and a trial that compares it with the kernels that it may replace.
#pragma once

#include <memory>
#include <vector>

#include "graphs/inductor/lowering.h"
#include "graphs/kernels/kernel.h"

namespace torchreel::graphs {

// `pointers` are the arguments of the library's function.
std::unique_ptr<Kernel> generated_kernel(std::shared_ptr<const Generated> generated, std::vector<void*> pointers);

// What a trial needs beside the kernels.
struct TrialMemory {
  std::vector<at::Tensor> outputs;  // of both
  std::vector<at::Tensor> written;  // that existed before, and that both write
};

// Leaves the results of `exact`, and tells the lowering how the two compare.
std::unique_ptr<Kernel> trial_kernel(std::shared_ptr<Lowering> lowering, std::shared_ptr<Cluster> cluster,
                                     std::vector<std::unique_ptr<Kernel>> exact, std::unique_ptr<Kernel> generated,
                                     TrialMemory memory);

}  // namespace torchreel::graphs
