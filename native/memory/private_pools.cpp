#include "memory/private_pools.h"

#include <atomic>
#include <map>
#include <mutex>

#include "memory/private_pool_list.h"
#include "memory/tally.h"

namespace torchreel {

namespace {

std::atomic<uint64_t> last_id{0};

// Never destroyed: pools of threads outlive everything.
struct Known {
  std::mutex mutex;
  std::vector<ListPrivatePools> lists;
  std::map<uint64_t, Tally::Stat> reserved;
};

Known& known() {
  static auto* all = new Known();
  return *all;
}

void count_reserved(uint64_t pool, int64_t bytes) {
  std::lock_guard lock(known().mutex);
  known().reserved[pool].change(bytes);
}

uint64_t next_id() { return ++last_id; }

void add_list(ListPrivatePools list) {
  std::lock_guard lock(known().mutex);
  known().lists.push_back(list);
}

}  // namespace

void count_change(PoolChange change, uint64_t pool, uint64_t amount) {
  Tally& tally = Tally::get();
  auto bytes = static_cast<int64_t>(amount);
  switch (change) {
    case PoolChange::kMap:
      tally.add(Tally::kReserved, Tally::kLarge, bytes);
      count_reserved(pool, bytes);
      break;
    case PoolChange::kUnmap:
      tally.remove(Tally::kReserved, Tally::kLarge, bytes);
      count_reserved(pool, -bytes);
      break;
    case PoolChange::kAlloc: tally.add_private(bytes); break;
    case PoolChange::kFree: tally.remove_private(bytes); break;
  }
}

std::vector<PrivatePool> list_private_pools() {
  std::vector<ListPrivatePools> lists;
  {
    std::lock_guard lock(known().mutex);
    lists = known().lists;
  }
  std::vector<PrivatePool> pools;
  for (auto list : lists) list(pools);
  return pools;
}

std::map<uint64_t, Tally::Stat> reserved_by_private_pools() {
  std::lock_guard lock(known().mutex);
  return known().reserved;
}

void reset_private_peaks() {
  std::lock_guard lock(known().mutex);
  for (auto& [pool, stat] : known().reserved) stat.peak = stat.current;
}

void lock_private_pools() { known().mutex.lock(); }
void unlock_private_pools() { known().mutex.unlock(); }

const PrivatePools& private_pools() {
  static const PrivatePools functions{&next_id, &add_list, &change_private_pool};
  return functions;
}

}  // namespace torchreel
