// An owner of a private pool, as simple as can be: one range, blocks at fixed places. For test_private_pools.py.
#include <cstdlib>
#include <mutex>
#include <vector>

#include "../../native/memory/private_pools.h"

using namespace torchreel;

namespace {

const PrivatePools* core = nullptr;
std::mutex mutex;
PrivatePool pool;

void list(std::vector<PrivatePool>& pools) {
  std::lock_guard lock(mutex);
  pools.push_back(pool);
}

}  // namespace

extern "C" {

uint64_t open_pool(const PrivatePools* functions) {
  core = functions;
  core->add_list(&list);
  pool.id = core->next_id();
  pool.address = reinterpret_cast<uint64_t>(aligned_alloc(4096, 1 << 24));
  return pool.id;
}

uint64_t address() { return pool.address; }

void reach(uint64_t size) {
  uint64_t old = pool.size;
  bool grows = size > old;
  change_pool(*core, grows ? PoolChange::kMap : PoolChange::kUnmap, pool.id,
              reinterpret_cast<void*>(pool.address + (grows ? old : size)), grows ? size - old : old - size, [&] {
                std::lock_guard lock(mutex);
                pool.size = size;
              });
}

void take(uint64_t offset, uint64_t size) {
  change_pool(*core, PoolChange::kAlloc, pool.id, reinterpret_cast<void*>(pool.address + offset), size, [&] {
    std::lock_guard lock(mutex);
    pool.blocks.push_back({pool.address + offset, size});
  });
}

void give(uint64_t offset) {
  uint64_t size = 0;
  for (const auto& block : pool.blocks) size = block.address == pool.address + offset ? block.size : size;
  change_pool(*core, PoolChange::kFree, pool.id, reinterpret_cast<void*>(pool.address + offset), size, [&] {
    std::lock_guard lock(mutex);
    std::erase_if(pool.blocks, [&](const auto& block) { return block.address == pool.address + offset; });
  });
}

// Takes and gives a block again and again.
void churn(uint64_t offset, int times) {
  for (int i = 0; i < times; i++) {
    take(offset, 4096);
    give(offset);
  }
}
}
