#include "simulator/gpu.h"

#include "simulator/simulator.h"

namespace torchreel::simulator {

bool GeneratedGpu::take(uint64_t bytes) {
  if (bytes > rules_.capacity || used_ > rules_.capacity - bytes) return false;
  used_ += bytes;
  return true;
}

bool GeneratedGpu::grants(Simulator& simulator, const Request& request) {
  return !rules_.limit || simulator.reserved() + request.segment_size <= *rules_.limit;
}

std::optional<uint64_t> GeneratedGpu::allocate(const Request& request) {
  if (!take(request.segment_size)) return std::nullopt;
  if (rules_.address_seed != 0) return address(request.segment_size);
  const uint64_t address = next_;
  next_ += Rules::round_up(request.segment_size, kSmallSegment);
  return address;
}

void GeneratedGpu::free(const Block& block) {
  used_ -= block.size;
  if (rules_.address_seed != 0) freed_[block.size].push_back(block.address);
}

// One of 2^20 places of 64 GiB, each once; every other time that of something freed, if it was of the same size.
uint64_t GeneratedGpu::address(uint64_t bytes) {
  const uint64_t jump = jumps_++;
  auto& freed = freed_[bytes];
  if (!freed.empty() && jump % 2 == 0) {
    const uint64_t address = freed.back();
    freed.pop_back();
    return address;
  }
  const uint64_t place = (jump * 0x9e375 + rules_.address_seed) % (1 << 20);
  return (uint64_t{1} << 57) + (place << 36);
}

uint64_t GeneratedGpu::reserve(const Request&, uint64_t bytes) {
  if (rules_.address_seed != 0 && bytes <= uint64_t{1} << 36) return address(uint64_t{1} << 36);
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

}  // namespace torchreel::simulator
