// Kernels of clusters: the generated one, and one that runs it beside those that it is to replace.
#pragma once

#include <memory>
#include <vector>

#include "graphs/inductor/lowering.h"
#include "graphs/kernels/kernel.h"

namespace torchreel::graphs {

// `pointers` as the library wants them.
std::unique_ptr<Kernel> generated_kernel(std::shared_ptr<const Generated> generated, std::vector<void*> pointers);

// What a trial needs beside the kernels.
struct TrialMemory {
  std::vector<at::Tensor> outputs;  // that both give
  std::vector<at::Tensor> written;  // that were there before, and that one of them writes
};

// Leaves what `exact` gives, and tells the lowering how the two compare.
std::unique_ptr<Kernel> trial_kernel(std::shared_ptr<Lowering> lowering, std::shared_ptr<Cluster> cluster,
                                     std::vector<std::unique_ptr<Kernel>> exact, std::unique_ptr<Kernel> generated,
                                     TrialMemory memory);

}  // namespace torchreel::graphs
