// What torch.cuda.memory_stats counts.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace torchreel::simulator {

struct Stat {
  int64_t current = 0;
  int64_t peak = 0;
  int64_t allocated = 0;
  int64_t freed = 0;

  void add(int64_t amount) {
    current += amount;
    peak = std::max(peak, current);
    allocated += amount;
  }
  void remove(int64_t amount) {
    current -= amount;
    freed += amount;
  }
};

// One number for all pools, one for the small ones and one for the large ones.
struct PoolStat {
  Stat all;
  Stat by_pool[2];  // small, large

  void add(bool small, int64_t amount) {
    all.add(amount);
    by_pool[!small].add(amount);
  }
  void remove(bool small, int64_t amount) {
    all.remove(amount);
    by_pool[!small].remove(amount);
  }
  void change(bool small, int64_t amount) {
    if (amount > 0) add(small, amount);
    if (amount < 0) remove(small, -amount);
  }
};

struct MemoryStats {
  PoolStat allocation, segment, active, inactive_split;
  PoolStat allocated_bytes, reserved_bytes, active_bytes, inactive_split_bytes, requested_bytes;
  std::map<int, PoolStat> private_reserved;  // reserved bytes by the index of the private pool
  Stat oversize_allocations, oversize_segments;
  int64_t num_alloc_retries = 0;
  int64_t num_ooms = 0;
  int64_t num_sync_all_streams = 0;
  int64_t num_device_alloc = 0;
  int64_t num_device_free = 0;
  int64_t num_oom_rejections = 0;

  // Allocated bytes when the reserved ones were at their peak for the first time.
  int64_t allocated_at_peak = 0;

  // Of a pool by its index; 0 is the default one.
  void reserve(int pool, bool small, int64_t bytes) {
    reserved_bytes.change(small, bytes);
    if (pool != 0) private_reserved[pool].change(small, bytes);
  }

  // By their names in torch.cuda.memory_stats; a private pool's has its index.
  std::vector<std::pair<std::string, int64_t>> named() const;
};

}  // namespace torchreel::simulator
