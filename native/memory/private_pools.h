// Pools of memory that another extension keeps for itself, so that snapshots, stats, histories and recordings have
// them. The extension finds the functions in _core's capsule "torchreel.private_pools".
//
// A pool is one range of addresses that grows and shrinks at its end. Its owner reports every change of it, and lists
// its pools when a snapshot asks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace torchreel {

struct PrivateBlock {
  uint64_t address, size;
};

struct PrivatePool {
  uint64_t id = 0;  // of next_id; (0, id) in a snapshot
  uint64_t address = 0, size = 0;
  std::vector<PrivateBlock> blocks;  // those in use, in any order
};

// Adds the pools of an extension as they are now. Called with the gate held: must not allocate tensors, take the GIL or
// report a change, and may throw nothing but for want of memory.
using ListPrivatePools = void (*)(std::vector<PrivatePool>& pools);

enum class PoolChange : uint8_t {
  kMap,    // the range grows by `bytes` at `address`
  kUnmap,  // it shrinks
  kAlloc,  // a block of it is in use from now on
  kFree,   // it no longer is, with the bytes of its kAlloc
};

struct PrivatePools {
  // A number for a new pool. None is given twice.
  uint64_t (*next_id)();
  // From now on these are listed too. A function is never removed: its library must stay loaded.
  void (*add_list)(ListPrivatePools list);
  // Runs `apply`, which changes the pool, together with what is counted and written of it. The gate may be held
  // meanwhile: `apply` must not allocate tensors, take the GIL or report another change, and may throw nothing. From
  // whatever thread, with the GIL or without it. Costs a few nanoseconds if no history and no recording wants to know.
  void (*change)(PoolChange change, uint64_t pool, uint64_t address, uint64_t bytes, void (*apply)(void* context),
                 void* context);
};

// The same with a lambda.
template <class Apply>
void change_pool(const PrivatePools& pools, PoolChange change, uint64_t pool, const void* address, size_t bytes,
                 Apply apply) {
  pools.change(
      change, pool, reinterpret_cast<uint64_t>(address), bytes,
      [](void* context) { (*static_cast<Apply*>(context))(); }, &apply);
}

}  // namespace torchreel
