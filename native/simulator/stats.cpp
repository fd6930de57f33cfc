#include "simulator/stats.h"

namespace torchreel::simulator {

namespace {

using Named = std::vector<std::pair<std::string, int64_t>>;

void put(Named& named, const std::string& name, const Stat& stat) {
  named.emplace_back(name + ".current", stat.current);
  named.emplace_back(name + ".peak", stat.peak);
  named.emplace_back(name + ".allocated", stat.allocated);
  named.emplace_back(name + ".freed", stat.freed);
}

void put(Named& named, const std::string& name, const PoolStat& stat) {
  put(named, name + ".all", stat.all);
  put(named, name + ".small_pool", stat.by_pool[0]);
  put(named, name + ".large_pool", stat.by_pool[1]);
}

}  // namespace

Named MemoryStats::named() const {
  Named named;
  put(named, "allocation", allocation);
  put(named, "segment", segment);
  put(named, "active", active);
  put(named, "inactive_split", inactive_split);
  put(named, "allocated_bytes", allocated_bytes);
  put(named, "reserved_bytes", reserved_bytes);
  put(named, "active_bytes", active_bytes);
  put(named, "inactive_split_bytes", inactive_split_bytes);
  put(named, "requested_bytes", requested_bytes);
  for (const auto& [pool, stat] : private_reserved) {
    put(named, "reserved_bytes_by_private_pools." + std::to_string(pool), stat);
  }
  put(named, "oversize_allocations", oversize_allocations);
  put(named, "oversize_segments", oversize_segments);
  named.emplace_back("num_alloc_retries", num_alloc_retries);
  named.emplace_back("num_ooms", num_ooms);
  named.emplace_back("num_sync_all_streams", num_sync_all_streams);
  named.emplace_back("num_device_alloc", num_device_alloc);
  named.emplace_back("num_device_free", num_device_free);
  named.emplace_back("num_oom_rejections", num_oom_rejections);
  return named;
}

}  // namespace torchreel::simulator
