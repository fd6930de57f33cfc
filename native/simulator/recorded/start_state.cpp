#include "simulator/recorded/start_state.h"

#include <algorithm>

namespace torchreel::simulator {

namespace {

// Fills one segment from its base to its end.
class Filler {
 public:
  Filler(RebuiltState& simulator, const StartSegment& start)
      : simulator_(simulator),
        segment_(simulator.add_segment(start.base, start.size, start.page)),
        pool_(start.small ? &simulator.pool(start.pool).small : &simulator.pool(start.pool).large),
        stream_(start.stream) {}

  uint64_t at() const { return last_ == nullptr ? segment_->base : last_->end(); }
  uint64_t end() const { return segment_->base + segment_->size; }

  // What lies between here and there is free, or unmapped.
  void gap(uint64_t address, BlockState state) {
    if (address <= at()) return;
    Block* block = append(address - at(), state);
    if (state == BlockState::kUnmapped) {
      pool_->unmapped.insert(block);
    } else {
      pool_->insert(block);
      if (!segment_->expandable()) gaps_.push_back(block);
    }
  }

  Block* block(const StartBlock& start) {
    Block* block = append(start.size, BlockState::kAllocated);
    block->requested = start.requested;
    block->room = start.room;
    MemoryStats& stats = simulator_.stats();
    stats.allocation.add(pool_->small, 1);
    stats.allocated_bytes.add(pool_->small, block->size);
    stats.active.add(pool_->small, 1);
    stats.active_bytes.add(pool_->small, block->size);
    stats.requested_bytes.add(pool_->small, block->requested);
    if (simulator_.rules().oversize(block->size)) stats.oversize_allocations.add(1);
    if (start.pending) simulator_.request_free(block);
    return block;
  }

  void finish() {
    for (Block* block : gaps_) {
      if (!block->is_split()) continue;
      simulator_.stats().inactive_split.add(pool_->small, 1);
      simulator_.stats().inactive_split_bytes.add(pool_->small, block->size);
    }
  }

 private:
  Block* append(uint64_t size, BlockState state) {
    last_ = simulator_.append_block(segment_, pool_, stream_, size, state, last_);
    return last_;
  }

  RebuiltState& simulator_;
  Segment* segment_;
  Pool* pool_;
  uint64_t stream_;
  Block* last_ = nullptr;
  std::vector<Block*> gaps_;
};

}  // namespace

int64_t StartState::load(RebuiltState& simulator, std::unordered_map<uint64_t, Block*>& live) const {
  simulator.set_ranks(ranks);
  auto block = blocks.begin();
  auto run = mapped.begin();
  // Fills with blocks and free gaps up to an address.
  const auto fill = [&](Filler& filler, uint64_t end) {
    for (; block != blocks.end() && block->address < end; ++block) {
      if (block->address < filler.at() || block->size == 0 || block->size > end - block->address) continue;
      filler.gap(block->address, BlockState::kFree);
      live[block->address] = filler.block(*block);
    }
    filler.gap(end, BlockState::kFree);
  };
  uint64_t end = 0;
  for (const StartSegment& segment : segments) {
    if (segment.base < end || segment.size == 0) continue;
    Filler filler(simulator, segment);
    if (segment.page == 0) {
      fill(filler, filler.end());
    } else {
      for (; run != mapped.end() && run->address < filler.end(); ++run) {
        if (run->address < filler.at() || run->size > filler.end() - run->address) continue;
        filler.gap(run->address, BlockState::kUnmapped);
        fill(filler, run->address + run->size);
      }
      filler.gap(filler.end(), BlockState::kUnmapped);
    }
    filler.finish();
    end = filler.at();
  }
  return simulator.counters();
}

}  // namespace torchreel::simulator
