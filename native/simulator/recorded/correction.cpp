#include "simulator/recorded/correction.h"

namespace torchreel::simulator {

Block* Correction::block_at(uint64_t address) {
  const Segment* segment = simulator_.segment_at(address);
  if (segment == nullptr) return nullptr;
  Block* block = segment->head;
  while (block != nullptr && block->end() <= address) block = block->next;
  return block;
}

void Correction::free(Block* block) {
  const auto it = live_.find(block->address);
  if (it != live_.end() && it->second == block) live_.erase(it);
  if (block->state == BlockState::kPending) {
    simulator_.complete_free(block);
  } else {
    simulator_.free(block);
  }
}

// The free block that the address lies in, after what else was there is freed; nullptr if there is no memory.
Block* Correction::free_block_at(uint64_t address) {
  Block* block = block_at(address);
  if (block == nullptr || block->state == BlockState::kUnmapped) return nullptr;
  if (block->is_free()) return block;
  free(block);
  return block_at(address);
}

Block* Correction::place(uint64_t address, const Request& request) {
  Block* block = free_block_at(address);
  if (block == nullptr) {
    Segment* segment = simulator_.segment_at(address);
    if (segment != nullptr && segment->expandable()) {
      map(address, request.size, request);
    } else {
      add_segment(address, request.segment_size, request);
    }
    block = free_block_at(address);
  }
  while (block != nullptr && block->end() - address < request.size && block->next != nullptr) {
    if (block->next->state == BlockState::kUnmapped) break;
    free(block->next);
    block = block_at(address);
  }
  if (block == nullptr || block->end() - address < request.size) return nullptr;
  block->pool->erase(block);
  if (address > block->address) block->pool->insert(simulator_.cut_front(block, address - block->address));
  Request here = request;
  here.pool = block->pool;
  return simulator_.hand_out(block, here);
}

// The end of an expandable segment may be made up: another one may lie there.
bool Correction::is_vacant(uint64_t address, uint64_t size) {
  const Block* block = block_at(address);
  if (block != nullptr && (block->state != BlockState::kUnmapped || block->segment->base == address)) return false;
  const auto next = simulator_.segments().lower_bound(address);
  return next == simulator_.segments().end() || next->first - address >= size;
}

void Correction::add_segment(uint64_t address, uint64_t size, const Request& request) {
  if (size == 0 || !is_vacant(address, size)) return;
  Segment* segment = simulator_.add_segment(address, size, 0);
  Block* block = simulator_.append_block(segment, request.pool, request.stream, size, BlockState::kFree, nullptr);
  block->pool->insert(block);
}

void Correction::remove_segment(uint64_t address) {
  Segment* segment = simulator_.segment_at(address);
  if (segment == nullptr || segment->expandable() || segment->base != address) return;
  for (Block* block = segment->head; block != nullptr;) {
    if (!block->is_free()) {
      free(block);
      block = segment->head;
    } else {
      block = block->next;
    }
  }
  // All is free and in one piece, unless pieces were cut by place().
  while (segment->head->next != nullptr) {
    simulator_.join(segment->head);
  }
  simulator_.release_segment(segment->head);
}

void Correction::map(uint64_t address, uint64_t bytes, const Request& request) {
  Block* block = block_at(address);
  if (block == nullptr) {
    const uint64_t page = simulator_.rules().page_size(request.pool->small);
    const uint64_t size = Rules::round_up(simulator_.rules().range_bytes, page);
    const auto next = simulator_.segments().lower_bound(address);
    const uint64_t room = next == simulator_.segments().end() ? size : std::min(size, next->first - address);
    if (room / page == 0) return;
    Segment* range = simulator_.add_segment(address, room / page * page, page);
    block = simulator_.append_block(range, request.pool, request.stream, range->size, BlockState::kUnmapped, nullptr);
    block->pool->unmapped.insert(block);
  }
  if (block->state != BlockState::kUnmapped) return;
  if (address > block->address) {
    const uint64_t page = block->segment->page;
    const uint64_t front = (address - block->address) / page * page;
    if (front > 0) {
      block->pool->unmapped.erase(block);
      Block* before = simulator_.cut_front(block, front);
      before->state = BlockState::kUnmapped;
      block->pool->unmapped.insert(before);
      block->pool->unmapped.insert(block);
    }
  }
  simulator_.map(block, std::min(block->size, bytes));
}

void Correction::unmap(uint64_t address, uint64_t bytes) {
  const uint64_t end = address + bytes;
  while (address < end) {
    Block* block = free_block_at(address);
    if (block == nullptr || !block->segment->expandable()) return;
    const uint64_t upto = std::min(end, block->end());
    simulator_.unmap(block, address, upto);
    address = upto;
  }
}

}  // namespace torchreel::simulator
