#include "gpu.h"

#include "simulator.h"

namespace torchreel {

bool GeneratedGpu::take(uint64_t bytes) {
  if (bytes > rules_.capacity || used_ > rules_.capacity - bytes) return false;
  used_ += bytes;
  return true;
}

std::optional<uint64_t> GeneratedGpu::allocate(const Request& request) {
  if (!take(request.segment_size)) return std::nullopt;
  const uint64_t address = next_;
  next_ += Rules::round_up(request.segment_size, kSmallSegment);
  return address;
}

uint64_t GeneratedGpu::reserve(const Request&, uint64_t bytes) {
  const uint64_t base = next_range_;
  next_range_ += Rules::round_up(bytes, kSmallSegment);
  return base;
}

bool GeneratedGpu::map(uint64_t, uint64_t bytes) { return take(bytes); }

void GeneratedGpu::synchronize(Simulator& simulator) {
  while (!simulator.pending().empty()) simulator.complete_free(simulator.pending().begin()->second);
}

uint64_t GeneratedGpu::garbage(Simulator& simulator) {
  const auto threshold = static_cast<uint64_t>(rules_.gc_threshold * static_cast<double>(*rules_.limit));
  return simulator.reserved() > threshold ? simulator.reserved() - threshold : 0;
}

std::vector<PoolPair*> GeneratedGpu::released_pools(Simulator& simulator) {
  std::vector<PoolPair*> pools{simulator.pools()[0].get()};
  for (auto& pool : simulator.pools()) {
    if (pool->released) pools.push_back(pool.get());
  }
  return pools;
}

}  // namespace torchreel
