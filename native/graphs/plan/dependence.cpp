#include "graphs/plan/dependence.h"

#include <algorithm>
#include <unordered_map>

namespace torchreel::graphs {

namespace {

struct Past {
  uint32_t kernel;
  Access access;
};

bool meet(const Access& one, const Access& other) { return one.begin < other.end && other.begin < one.end; }

void add_met(const std::vector<Past>& past, const Access& access, std::vector<uint32_t>& found) {
  for (const auto& before : past) {
    if (meet(before.access, access)) found.push_back(before.kernel);
  }
}

}  // namespace

std::vector<std::vector<uint32_t>> dependences(const std::vector<std::vector<Access>>& kernels) {
  std::unordered_map<uint32_t, std::vector<Past>> reads, writes;  // by space
  std::vector<std::vector<uint32_t>> all(kernels.size());
  for (uint32_t kernel = 0; kernel < kernels.size(); kernel++) {
    auto& found = all[kernel];
    for (const auto& access : kernels[kernel]) {
      add_met(writes[access.space], access, found);
      if (access.writes) add_met(reads[access.space], access, found);
    }
    std::sort(found.begin(), found.end());
    found.erase(std::unique(found.begin(), found.end()), found.end());
    for (const auto& access : kernels[kernel]) {
      (access.writes ? writes : reads)[access.space].push_back({kernel, access});
    }
  }
  return all;
}

}  // namespace torchreel::graphs
