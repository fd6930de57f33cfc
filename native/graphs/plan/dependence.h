// What has to come before what: kernels that use the same memory, of which one writes it, keep their order.
#pragma once

#include <cstdint>
#include <vector>

namespace torchreel::graphs {

// Bytes that a kernel uses. Those of different spaces never meet.
struct Access {
  uint32_t space;
  uintptr_t begin, end;
  bool writes;
};

// For each kernel, by what it uses: those before it that it has to come after, the first first.
std::vector<std::vector<uint32_t>> dependences(const std::vector<std::vector<Access>>& kernels);

}  // namespace torchreel::graphs
