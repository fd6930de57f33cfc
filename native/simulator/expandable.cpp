// The simulator's expandable segments: address space as large as the device, with memory mapped into it page by page.
#include "simulator/simulator.h"

namespace torchreel::simulator {

// Where in the pool's address space there is room for the request, at the lowest address.
Block* Simulator::find_room(const Request& request) {
  auto& unmapped = request.pool->unmapped;
  const auto usable = [](const Block* block) {
    return block != nullptr && (block->state == BlockState::kFree || block->state == BlockState::kUnmapped);
  };
  Block key;
  key.stream = request.stream;
  for (auto it = unmapped.lower_bound(&key); it != unmapped.end() && (*it)->stream == request.stream; ++it) {
    Block* first = usable((*it)->previous) ? (*it)->previous : *it;
    uint64_t bytes = 0;
    for (Block* block = first; bytes < request.size && usable(block); block = block->next) bytes += block->size;
    if (bytes >= request.size) return first;
  }
  return nullptr;
}

// Such a place, else new address space.
Block* Simulator::find_expandable(const Request& request) {
  if (Block* block = find_room(request)) return block;
  const uint64_t page = rules_.page_size(request.pool->small);
  const uint64_t bytes = Rules::round_up(rules_.range_bytes, page);
  if (bytes < request.size) return nullptr;
  Segment* range = add_segment(gpu_.reserve(request, bytes), bytes, page);
  Block* block = append_block(range, request.pool, request.stream, bytes, BlockState::kUnmapped, nullptr);
  block->pool->unmapped.insert(block);
  return block;
}

// Puts memory behind the first bytes of an unmapped block, in whole pages: a free block, joined with its neighbours.
bool Simulator::map(Block* block, uint64_t wanted) {
  const uint64_t bytes = std::min(block->size, Rules::round_up(wanted, block->segment->page));
  if (!gpu_.map(block->address, bytes)) return false;
  Pool& pool = *block->pool;
  pool.unmapped.erase(block);
  const uint64_t address = block->address;
  if (bytes < block->size) {
    Block* rest = cut_back(block, address + bytes);
    rest->state = BlockState::kUnmapped;
    pool.unmapped.insert(rest);
  }
  merge(block, block->previous, BlockState::kFree);
  merge(block, block->next, BlockState::kFree);
  pool.insert(block);
  reserve_bytes(pool, bytes);
  stats_.num_device_alloc++;
  record(Action::kSegmentMap, address, bytes, block->stream, &pool);
  return true;
}

Block* Simulator::acquire_expandable(const Request& request) {
  Block* block = find_expandable(request);
  if (block == nullptr) return nullptr;
  if (block->state == BlockState::kUnmapped && !map(block, std::min(block->size, request.size))) {
    // Address space that was never used is kept by PyTorch too: the next request finds it.
    return nullptr;
  }
  while (block->size < request.size) {
    Block* next = block->next;
    if (!map(next, std::min(request.size - block->size, next->size))) return nullptr;
    block = next;
  }
  block->pool->erase(block);
  return block;
}

// Takes the memory from behind the whole pages of a free block; what is left at its ends stays free.
void Simulator::unmap(Block* block) {
  const auto [begin, end] = whole_pages(block);
  if (begin < end) unmap(block, begin, end);
}

void Simulator::unmap(Block* block, uint64_t begin, uint64_t end) {
  Segment* range = block->segment;
  Pool& pool = *block->pool;
  pool.erase(block);
  if (begin > block->address) pool.insert(cut_front(block, begin - block->address));
  if (end < block->end()) pool.insert(cut_back(block, end));
  block->state = BlockState::kUnmapped;
  merge(block, block->previous, BlockState::kUnmapped);
  merge(block, block->next, BlockState::kUnmapped);
  pool.unmapped.insert(block);
  stats_.reserve(pool.owner, pool.small, -static_cast<int64_t>(end - begin));
  stats_.num_device_free++;
  record(Action::kSegmentUnmap, begin, end - begin, block->stream, &pool);
  gpu_.unmap(*block, begin, end - begin);
  if (!block->is_split()) {
    pool.unmapped.erase(block);
    arena_.drop(block);
    remove_segment(range);
  }
}

std::pair<uint64_t, uint64_t> Simulator::whole_pages(const Block* block) {
  const Segment* range = block->segment;
  const uint64_t begin = Rules::round_up(block->address - range->base, range->page);
  const uint64_t end = (block->end() - range->base) / range->page * range->page;
  return {range->base + begin, range->base + end};
}

}  // namespace torchreel::simulator
