// Finds, among the kernels of a graph, those that one kernel can do together.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "graphs/kernels/kernel.h"

namespace torchreel::graphs {

// A kernel at its place in a graph.
struct Placed {
  std::unique_ptr<Kernel> kernel;
  uint32_t op;  // of the program
  int64_t step;
  KernelCall call;             // without an op where it is nothing to be fused
  std::vector<int64_t> lasts;  // for each result: the last step that uses its memory
};

// Replaces runs of kernels by one that does the same, bit by bit. The new one has the op of the first.
void fuse(std::vector<Placed>& kernels);

}  // namespace torchreel::graphs
