// The allocator of CPU tensors that stands before torch's own. Once installed it stays, and passes through whatever it
// is not asked to do: cache freed memory (the heap), keep a history of it, write events of a recording.
//
//     tensor ── allocate ──► heap, or torch's allocator ──► history ──► events of the recording
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/placement.h"

namespace torchreel {

// From now on allocs and frees are events of the active recording. Does not require the GIL.
void watch_allocations(bool on);
// The same for those of models that are recorded by themselves.
void watch_model_allocations(bool on);

// From now on new blocks come from the caching heap, or from torch's allocator again. A block goes back where it came
// from.
void cache_allocations(bool on);
bool caches_allocations();
// Gives what the heap does not use back to the system, and returns the bytes that went.
size_t empty_cache();

// From now on allocs and frees are written to the history, which has been started.
void keep_history(bool on);

// From now on the calling thread's blocks are put where this says, and are no events; null for nowhere. Gives the one
// before.
Placement* place_blocks(Placement* placement);

// Makes the free of a block that torch's allocator made before seen too. Returns false if the block is not such a one.
bool adopt_storage(void* storage_impl);

// Called when there is no memory for a block, before the error is raised, with the bytes that were asked for, those
// allocated, and those that could still be had. No lock is held. May throw nothing.
using OutOfMemoryObserver = void (*)(size_t asked, size_t allocated, size_t available);
void observe_out_of_memory(OutOfMemoryObserver observer);

}  // namespace torchreel
