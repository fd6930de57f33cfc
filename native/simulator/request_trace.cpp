#include "simulator/request_trace.h"

namespace torchreel::simulator {

// The block of that handle, or nullptr: its alloc may have failed, or its free may have been completed early.
Block* RequestTraceRun::take(uint64_t handle, bool keep) {
  const auto it = live_.find(handle);
  if (it == live_.end()) return nullptr;
  Block* block = it->second;
  if (!keep) live_.erase(it);
  return block;
}

void RequestTraceRun::run(const RequestTrace& events) {
  for (size_t i = 0; i < events.count; i++) {
    const auto handle = static_cast<uint64_t>(events.handles[i]);
    switch (static_cast<Action>(events.actions[i])) {
      case Action::kAlloc:
      case Action::kPreexisting: {
        Block* block = simulator_.malloc(events.sizes[i], events.streams[i], events.pools[i]);
        if (block == nullptr) {
          if (!first_oom_) {
            first_oom_ = {static_cast<int64_t>(i), static_cast<uint64_t>(events.sizes[i]), simulator_.reserved()};
          }
          break;
        }
        block->handle = handle;
        live_[handle] = block;
        break;
      }
      case Action::kFree:
        if (Block* block = take(handle, false)) simulator_.free(block);
        break;
      case Action::kFreeRequested:
        if (Block* block = take(handle, true); block != nullptr && block->state == BlockState::kAllocated) {
          simulator_.request_free(block);
        }
        break;
      case Action::kFreeCompleted:
        if (Block* block = take(handle, false)) {
          if (block->state == BlockState::kAllocated) simulator_.request_free(block);
          simulator_.complete_free(block);
        }
        break;
      case Action::kEmptyCache: simulator_.empty_cache(); break;
      case Action::kReleasePool: simulator_.pool(events.pools[i]).released = true; break;
      default: break;
    }
  }
}

void RequestTraceRun::synchronize(Simulator& simulator) {
  while (!simulator.pending().empty()) {
    Block* block = simulator.pending().begin()->second;
    live_.erase(block->handle);
    simulator.complete_free(block);
  }
}

}  // namespace torchreel::simulator
