// How the simulator gives memory back to the device.
#include "simulator/simulator.h"

namespace torchreel::simulator {

void Simulator::empty_cache() { release_cached(); }

void Simulator::release_cached() {
  stats_.num_sync_all_streams++;
  gpu_.synchronize(*this);
  for (PoolPair* owner : gpu_.released_pools(*this)) {
    const bool is_default = owner->large.owner == 0;
    release_pool(is_default ? owner->large : owner->small);
    release_pool(is_default ? owner->small : owner->large);
  }
}

void Simulator::release_pool(Pool& pool) {
  for (Block* block : cached_victims(pool)) {
    if (block->segment->expandable()) {
      unmap(block);
    } else {
      release_segment(block);
    }
  }
}

// Segments that are one free block, then the free blocks of expandable segments with whole pages in them.
std::vector<Block*> Simulator::cached_victims(Pool& pool) {
  std::vector<Block*> segments;
  std::vector<Block*> expandable;
  for (const FreeKey& key : pool.free) {
    if (key.block->segment->expandable()) {
      const auto [begin, end] = whole_pages(key.block);
      if (begin < end) expandable.push_back(key.block);
    } else if (!key.block->is_split()) {
      segments.push_back(key.block);
    }
  }
  if (learns_ties_) {
    gpu_.arrange(segments, false);
    gpu_.arrange(expandable, false);
  }
  segments.insert(segments.end(), expandable.begin(), expandable.end());
  return segments;
}

void Simulator::release_segment(Block* block) {
  Pool& pool = *block->pool;
  stats_.num_device_free++;
  record(Action::kSegmentFree, block->address, block->size, block->stream, &pool);
  gpu_.free(*block);
  stats_.segment.remove(pool.small, 1);
  stats_.reserve(pool.owner, pool.small, -static_cast<int64_t>(block->size));
  if (rules_.oversize(block->size)) stats_.oversize_segments.remove(1);
  pool.erase(block);
  remove_segment(block->segment);
  arena_.drop(block);
}

// One block that is large enough, else the largest ones of the stream until they are; none of those that are gone by
// then.
std::vector<Block*> Simulator::oversize_victims(const Request& request, const BlockSet& gone) {
  if (rules_.max_split == kUnlimited) return {};
  FreeSet& free = request.pool->free;
  const uint64_t wanted = rules_.oversize_bytes(request.size);
  // No block of that size is ever split, except where a damaged file says so.
  const auto releasable = [&](Block* block) {
    return !block->segment->expandable() && !block->is_split() && !gone.contains(block);
  };
  auto first = request.pool->first(request.stream, wanted);
  while (first != free.end() && first->stream == request.stream && gone.contains(first->block)) ++first;
  std::vector<Block*> victims;
  if (first != free.end() && first->stream == request.stream && releasable(first->block)) {
    victims.push_back(first->block);
    if (learns_ties_) {
      for (auto it = std::next(first); it != free.end() && it->stream == first->stream && it->size == first->size;
           ++it) {
        if (releasable(it->block)) victims.push_back(it->block);
      }
      gpu_.arrange(victims, false);
    }
    victims.resize(1);
    return victims;
  }
  for (auto it = first; it != free.begin();) {
    --it;
    if (!rules_.oversize(it->size) || it->stream != request.stream) break;
    if (releasable(it->block)) victims.push_back(it->block);
  }
  if (learns_ties_) gpu_.arrange(victims, true);
  uint64_t bytes = 0;
  size_t count = 0;
  while (count < victims.size() && bytes < wanted) bytes += victims[count++]->size;
  victims.resize(count);
  return victims;
}

bool Simulator::release_oversize(const Request& request) {
  const uint64_t wanted = rules_.oversize_bytes(request.size);
  uint64_t bytes = 0;
  for (Block* block : oversize_victims(request)) {
    if (bytes > 0 && gpu_.is_enough(bytes, wanted)) return true;
    bytes += block->size;
    release_segment(block);
  }
  return bytes > 0 && gpu_.is_enough(bytes, wanted);
}

// The unsplit blocks of the default large pool that are at least of average age, again and again.
std::vector<std::vector<Block*>> Simulator::garbage_rounds() {
  Pool& pool = pools_[0]->large;
  std::vector<Block*> left;
  int64_t total_age = 0;
  int64_t count = 0;
  for (const FreeKey& key : pool.free) {
    if (key.block->is_split()) continue;
    total_age += pool.age(key.block);
    count++;
    if (!key.block->segment->expandable()) left.push_back(key.block);
  }
  std::vector<std::vector<Block*>> rounds;
  while (count > 0) {
    const double average = static_cast<double>(total_age) / static_cast<double>(count);
    std::vector<Block*> round;
    std::vector<Block*> younger;
    for (Block* block : left) {
      if (static_cast<double>(pool.age(block)) < average) {
        younger.push_back(block);
        continue;
      }
      round.push_back(block);
      total_age -= pool.age(block);
      count--;
    }
    if (round.empty()) break;
    left = std::move(younger);
    rounds.push_back(std::move(round));
  }
  return rounds;
}

void Simulator::collect_garbage() {
  const uint64_t wanted = gpu_.garbage(*this);
  if (wanted == 0) return;
  uint64_t bytes = 0;
  for (auto& round : garbage_rounds()) {
    if (bytes >= wanted) break;
    if (learns_ties_) gpu_.arrange(round, false);
    for (Block* block : round) {
      bytes += block->size;
      release_segment(block);
    }
  }
}

}  // namespace torchreel::simulator
