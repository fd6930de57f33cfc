// What _core knows of the private pools of other extensions.
#pragma once

#include <map>
#include <vector>

#include "memory/private_pools.h"
#include "memory/tally.h"

namespace torchreel {

// For the capsule.
const PrivatePools& private_pools();

// All of them as they are now. With the gate held.
std::vector<PrivatePool> list_private_pools();
// By their ids, those that are gone included.
std::map<uint64_t, Tally::Stat> reserved_by_private_pools();
void reset_private_peaks();
void count_change(PoolChange change, uint64_t pool, uint64_t bytes);

// Makes and tells a change; in front_allocator.cpp.
void change_private_pool(PoolChange change, uint64_t pool, uint64_t address, uint64_t bytes, void (*apply)(void*),
                         void* context);

// Around a fork.
void lock_private_pools();
void unlock_private_pools();

}  // namespace torchreel
