// Fusion: replaces kernels of a graph that can run tile by tile with one kernel.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "graphs/kernels/kernel.h"

namespace torchreel::graphs {

// A kernel of a graph, bound to memory.
struct BoundKernel {
  std::unique_ptr<Kernel> kernel;
  uint32_t op;  // of the program
  int64_t step;
  KernelCall call;             // without an op if it cannot be fused
  std::vector<int64_t> lasts;  // for each result: the last step that uses its memory
};

// Replaces successive kernels with one that gives the same bits. The new one has the op of the first.
void fuse(std::vector<BoundKernel>& kernels);

}  // namespace torchreel::graphs
