// A pool that is put back into an earlier state, as trees of CUDA graphs do it: all of it is freed, then all blocks of
// a segment are allocated from its beginning to its end, and those that were free then are freed again. Nothing is
// searched for, so the allocs say themselves where they are.
#include "simulator/recorded/run.h"

namespace torchreel::simulator {

// The allocs from the window's on that fill a free segment; none if they do not.
size_t RecordedRun::restored_blocks() {
  const RecordedEvent& first = events_[end_];
  if (first.action != Action::kAlloc || request_.owner->large.owner == 0) return 0;
  const Block* block = simulator_.search(request_);
  if (block == nullptr || block->address != first.address) block = correction_.block_at(first.address);
  if (block == nullptr || !block->is_free() || block->pool->owner == 0 || block->address != first.address) return 0;
  const bool is_whole = block->previous == nullptr || block->previous->state == BlockState::kUnmapped;
  if (!is_whole || (block->next != nullptr && block->next->state != BlockState::kUnmapped)) return 0;
  uint64_t address = first.address;
  size_t count = 0;
  for (size_t i = end_; i < events_.size() && address < block->end(); i++, count++) {
    const RecordedEvent& event = events_[i];
    const bool goes_on = event.action == Action::kAlloc && event.address == address && event.stream == block->stream &&
                         event.size > 0 && event.size % kLeastBlock == 0;
    if (!goes_on) return 0;
    address += event.size;
  }
  return address == block->end() ? count : 0;
}

void RecordedRun::restore_checkpoint(size_t count) {
  for (size_t i = 0; i < count; i++) {
    const RecordedEvent& event = events_[end_ + i];
    Block* block = correction_.block_at(event.address);
    Request request = simulator_.request(event.size, event.stream, block->pool->owner);
    request.pool = block->pool;
    request.size = event.size;
    // Each takes just its own bytes, whatever the rules of splitting say.
    request.expandable = true;
    request.owner = &simulator_.pool(0);
    block->pool->erase(block);
    live_[event.address] = simulator_.hand_out(block, request);
    allocs_.matched++;
  }
  end_ += count - 1;
}

}  // namespace torchreel::simulator
