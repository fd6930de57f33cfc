// Dependences: two kernels that use the same memory keep their order if one of them writes it.
#pragma once

#include <cstdint>
#include <vector>

namespace torchreel::graphs {

// Bytes that a kernel uses. Accesses in different spaces never overlap.
struct Access {
  uint32_t space;
  uintptr_t begin, end;
  bool writes;
};

// For each kernel, the earlier kernels that it depends on, in ascending order.
std::vector<std::vector<uint32_t>> dependences(const std::vector<std::vector<Access>>& kernels);

}  // namespace torchreel::graphs
