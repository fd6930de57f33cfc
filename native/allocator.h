// Every alloc and free of CPU tensors as an event, by an allocator that stands before torch's own and delegates to it,
// so that other observers of memory see what they saw before. Once installed it stays, and only passes through.
#pragma once

#include <cstdint>
#include <vector>

namespace torchreel {

// From now on allocs and frees are events of the active recording. Does not require the GIL.
void watch_allocations(bool on);

// Makes the free of a block that torch's allocator made before seen too. Returns false if the block is not such a one.
bool adopt_storage(void* storage_impl);

}  // namespace torchreel
