#include "simulator/simulator.h"

namespace torchreel::simulator {

Simulator::Simulator(const Rules& rules, Gpu& gpu) : rules_(rules), gpu_(gpu) { pool(0); }

PoolPair& Simulator::pool(int index) {
  while (pools_.size() <= static_cast<size_t>(index)) {
    pools_.push_back(std::make_unique<PoolPair>(static_cast<int>(pools_.size()), &memory_));
  }
  return *pools_[index];
}

Request Simulator::request(uint64_t requested, uint64_t stream, int index) {
  PoolPair& owner = pool(index);
  const uint64_t size = rules_.block_size(requested);
  return {.requested = requested,
          .size = size,
          .segment_size = rules_.segment_size(size),
          .stream = stream,
          .pool = size <= kMostSmall ? &owner.small : &owner.large,
          .owner = &owner,
          .expandable = rules_.expandable && !owner.own_device};
}

Block* Simulator::malloc(uint64_t requested, uint64_t stream, int index) {
  return malloc(request(requested, stream, index));
}

Block* Simulator::malloc(Request wanted) {
  at_peak_ = false;
  Block* block = find(wanted);
  if (block == nullptr) block = make_room(wanted);
  if (block == nullptr) {
    stats_.num_ooms++;
    record(Action::kOom, 0, wanted.size, wanted.stream, wanted.pool);
    return nullptr;
  }
  return hand_out(block, wanted);
}

Block* Simulator::malloc_by_growing(const Request& request) {
  Block* block = acquire(request);
  return block == nullptr ? nullptr : hand_out(block, request);
}

// What a block has and can grow by.
uint64_t Simulator::room(const Block* block) {
  const Block* next = block->next;
  return block->size + (next != nullptr && next->state == BlockState::kUnmapped ? next->size : 0);
}

// A block that can grow is kept for requests that need that: the search goes on while the next one has less room.
FreeSet::iterator Simulator::walk(const Request& request, FreeSet::iterator it) {
  FreeSet& free = request.pool->free;
  for (auto next = std::next(it); it->block->segment->expandable() && next != free.end() &&
                                  next->stream == request.stream && room(next->block) < room(it->block);
       ++next) {
    it = next;
  }
  return it;
}

FreeSet::iterator Simulator::candidate(const Request& request, bool learns) {
  FreeSet& free = request.pool->free;
  const auto is_there = [&](FreeSet::iterator it) { return it != free.end() && it->stream == request.stream; };
  auto it = request.pool->first(request.stream, request.size);
  if (!is_there(it)) return free.end();
  if (it->block->segment->expandable() && !request.expandable) {
    while (is_there(it) && it->block->segment->expandable()) ++it;
  } else {
    it = learns ? gpu_.choose(request, it) : walk(request, it);
  }
  if (!is_there(it)) return free.end();
  if (!rules_.oversize(request.size) && rules_.oversize(it->size)) return free.end();
  if (rules_.oversize(request.size) && it->size >= request.size + rules_.max_non_split_rounding) return free.end();
  return it;
}

Block* Simulator::search(const Request& request) {
  const auto it = candidate(request, false);
  return it == request.pool->free.end() ? nullptr : it->block;
}

Block* Simulator::find(const Request& request) {
  if (rules_.counts_ages) request.pool->calls++;
  const auto it = candidate(request, learns_ties_);
  if (it == request.pool->free.end()) return nullptr;
  Block* block = it->block;
  request.pool->free.erase(it);
  return block;
}

Block* Simulator::make_room(Request& request) {
  if (rules_.counts_ages) collect_garbage();
  if (rules_.throw_on_oom && reserved() + request.segment_size > rules_.limit.value_or(rules_.capacity)) {
    stats_.num_oom_rejections++;
    return nullptr;
  }
  if (Block* block = acquire(request)) return block;
  if (Block* block = find_overflow(request)) return block;
  if (gpu_.releases_oversize(*this, request) && release_oversize(request)) {
    if (Block* block = acquire(request)) return block;
  }
  if (!gpu_.releases_cached(*this, request)) return nullptr;
  release_cached();
  stats_.num_alloc_retries++;
  return acquire(request);
}

// A free block of a pool that has offered itself for this.
Block* Simulator::find_overflow(Request& request) {
  if (request.owner->large.owner != 0) return nullptr;
  for (auto& owner : pools_) {
    if (!owner->use_on_oom) continue;
    Request other = request;
    other.owner = owner.get();
    other.pool = request.pool->small ? &owner->small : &owner->large;
    other.expandable = false;
    if (Block* block = find(other)) {
      request = other;
      return block;
    }
  }
  return nullptr;
}

Block* Simulator::acquire(const Request& request) {
  if (!gpu_.grants(*this, request)) return nullptr;
  return request.expandable ? acquire_expandable(request) : acquire_segment(request);
}

Block* Simulator::acquire_segment(const Request& request) {
  const auto address = gpu_.allocate(request);
  if (!address) return nullptr;
  Segment* segment = add_segment(*address, request.segment_size, 0);
  Block* block = append_block(segment, request.pool, request.stream, segment->size, BlockState::kFree, nullptr);
  stats_.num_device_alloc++;
  record(Action::kSegmentAlloc, block->address, block->size, block->stream, block->pool);
  return block;
}

bool Simulator::should_split(const Block* block, const Request& request) const {
  if (request.owner->no_split) return false;
  const uint64_t rest = block->size - request.size;
  if (request.pool->small || request.expandable) return rest >= kLeastBlock;
  return !rules_.oversize(request.size) && rest > kMostSmall;
}

// A new block within another one, which is in no set.
Block* Simulator::piece(const Block* parent, uint64_t address, uint64_t size) {
  Block* block = arena_.make();
  block->address = address;
  block->size = size;
  block->stream = parent->stream;
  block->segment = parent->segment;
  block->pool = parent->pool;
  block->counter = block_counter(parent);
  return block;
}

// The low end of the block as a block of its own. Neither is in a set.
Block* Simulator::cut_front(Block* block, uint64_t size) {
  Block* front = piece(block, block->address, size);
  front->previous = block->previous;
  front->next = block;
  if (front->previous != nullptr) {
    front->previous->next = front;
  } else {
    block->segment->head = front;
  }
  block->previous = front;
  block->address += size;
  block->size -= size;
  return front;
}

// The high end of the block, from the address on, as a block of its own. Neither is in a set.
Block* Simulator::cut_back(Block* block, uint64_t address) {
  Block* back = piece(block, address, block->end() - address);
  back->previous = block;
  back->next = block->next;
  if (back->next != nullptr) back->next->previous = back;
  block->next = back;
  block->size = address - block->address;
  return back;
}

Block* Simulator::hand_out(Block* block, const Request& request) {
  const bool small = block->pool->small;
  const bool was_split = block->is_split();
  const bool counts_splits = !block->segment->expandable();
  if (should_split(block, request)) {
    Block* rest = block;
    block = cut_front(rest, request.size);
    rest->pool->insert(rest);
    if (counts_splits && was_split) {
      stats_.inactive_split_bytes.remove(small, block->size);
    } else if (counts_splits) {
      stats_.inactive_split_bytes.add(small, rest->size);
      stats_.inactive_split.add(small, 1);
    }
  } else if (counts_splits && was_split) {
    stats_.inactive_split_bytes.remove(small, block->size);
    stats_.inactive_split.remove(small, 1);
  }
  block->state = BlockState::kAllocated;
  block->requested = request.requested;
  record(Action::kAlloc, block->address, block->requested, block->stream, block->pool);
  stats_.allocation.add(small, 1);
  stats_.allocated_bytes.add(small, block->size);
  stats_.active.add(small, 1);
  stats_.active_bytes.add(small, block->size);
  stats_.requested_bytes.add(small, block->requested);
  if (rules_.oversize(block->size)) stats_.oversize_allocations.add(1);
  const Stat& reserved = stats_.reserved_bytes.all;
  if (at_peak_ && reserved.current == reserved.peak) {
    stats_.allocated_at_peak = stats_.allocated_bytes.all.current;
  }
  return block;
}

void Simulator::begin_free(Block* block) {
  const bool small = block->pool->small;
  block->state = BlockState::kPending;
  stats_.allocation.remove(small, 1);
  stats_.allocated_bytes.remove(small, block->size);
  if (rules_.oversize(block->size)) stats_.oversize_allocations.remove(1);
  record(Action::kFreeRequested, block->address, block->requested, block->stream, block->pool);
}

void Simulator::finish_free(Block* block) {
  Pool& pool = *block->pool;
  block->room = 0;
  record(Action::kFreeCompleted, block->address, block->requested, block->stream, block->pool);
  stats_.active.remove(pool.small, 1);
  stats_.active_bytes.remove(pool.small, block->size);
  stats_.requested_bytes.remove(pool.small, block->requested);
  int64_t splits = 0;
  int64_t split_bytes = 0;
  for (Block* neighbour : {block->previous, block->next}) {
    const uint64_t merged = merge(block, neighbour, BlockState::kFree);
    if (merged > 0) {
      splits--;
      split_bytes -= static_cast<int64_t>(merged);
    }
  }
  pool.insert(block);
  if (block->is_split()) {
    splits++;
    split_bytes += static_cast<int64_t>(block->size);
  }
  if (!block->segment->expandable()) {
    stats_.inactive_split.change(pool.small, splits);
    stats_.inactive_split_bytes.change(pool.small, split_bytes);
  }
}

void Simulator::free(Block* block) {
  begin_free(block);
  finish_free(block);
}

void Simulator::request_free(Block* block) {
  begin_free(block);
  block->ticket = next_ticket_++;
  pending_.emplace(block->ticket, block);
}

void Simulator::complete_free(Block* block) {
  pending_.erase(block->ticket);
  block->ticket = 0;
  finish_free(block);
}

// Takes the neighbour into the block if it is in that state. Returns the bytes that were won.
uint64_t Simulator::merge(Block* block, Block* neighbour, BlockState state) {
  if (neighbour == nullptr || neighbour->state != state) return 0;
  if (state == BlockState::kUnmapped) {
    block->pool->unmapped.erase(neighbour);
  } else {
    block->pool->erase(neighbour);
  }
  if (block->previous == neighbour) {
    block->address = neighbour->address;
    block->previous = neighbour->previous;
    if (block->previous != nullptr) {
      block->previous->next = block;
    } else {
      block->segment->head = block;
    }
  } else {
    block->next = neighbour->next;
    if (block->next != nullptr) block->next->previous = block;
  }
  const uint64_t bytes = neighbour->size;
  block->size += bytes;
  arena_.drop(neighbour);
  return bytes;
}

// Takes a free block's next one, which is free too, into it.
void Simulator::join(Block* block) {
  block->pool->erase(block);
  merge(block, block->next, BlockState::kFree);
  block->pool->insert(block);
}

int64_t Simulator::next_counter() {
  const int64_t counter = next_counter_++;
  return static_cast<size_t>(counter) < ranks_.size() ? ranks_[counter] : counter;
}

int64_t Simulator::segment_counter() { return rules_.order == TieOrder::kSegment ? next_counter() : 0; }

int64_t Simulator::block_counter(const Block* parent) {
  return rules_.order == TieOrder::kBlock ? next_counter() : parent->counter;
}

void Simulator::reserve_bytes(const Pool& pool, uint64_t bytes) {
  const int64_t peak = stats_.reserved_bytes.all.peak;
  stats_.reserve(pool.owner, pool.small, static_cast<int64_t>(bytes));
  if (stats_.reserved_bytes.all.peak > peak) {
    stats_.allocated_at_peak = stats_.allocated_bytes.all.current;
    at_peak_ = true;
  }
}

Segment* Simulator::add_segment(uint64_t base, uint64_t size, uint64_t page) {
  Segment* segment;
  if (spare_segments_.empty()) {
    segment = &segment_store_.emplace_back();
  } else {
    segment = spare_segments_.back();
    spare_segments_.pop_back();
  }
  *segment = {.base = base, .size = size, .page = page, .counter = segment_counter()};
  segments_[base] = segment;
  return segment;
}

void Simulator::remove_segment(Segment* segment) {
  const auto it = segments_.find(segment->base);
  if (it != segments_.end() && it->second == segment) segments_.erase(it);
  spare_segments_.push_back(segment);
}

// A block behind the segment's last one. A free or unmapped one is in no set yet.
Block* Simulator::append_block(Segment* segment, Pool* pool, uint64_t stream, uint64_t size, BlockState state,
                               Block* last) {
  Block* block = arena_.make();
  block->address = last == nullptr ? segment->base : last->end();
  block->size = size;
  block->stream = stream;
  block->segment = segment;
  block->pool = pool;
  block->state = state;
  block->counter = rules_.order == TieOrder::kBlock ? next_counter() : segment->counter;
  block->previous = last;
  if (last == nullptr) {
    segment->head = block;
  } else {
    last->next = block;
  }
  if (!segment->expandable()) {
    if (last == nullptr) {
      stats_.segment.add(pool->small, 1);
      if (rules_.oversize(segment->size)) stats_.oversize_segments.add(1);
    }
    reserve_bytes(*pool, size);
  } else if (state != BlockState::kUnmapped) {
    reserve_bytes(*pool, size);
  }
  return block;
}

Segment* Simulator::segment_at(uint64_t address) {
  auto it = segments_.upper_bound(address);
  if (it == segments_.begin()) return nullptr;
  Segment* segment = std::prev(it)->second;
  return address - segment->base < segment->size ? segment : nullptr;
}

}  // namespace torchreel::simulator
