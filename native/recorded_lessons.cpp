// What a recorded run learns of the state that its history began with, and that no file holds.
#include "recorded_run.h"

namespace torchreel {

// Among free blocks of one size whose counters are older than the history, the recorded choice was the first.
FreeSet::iterator RecordedRun::choose(const Request& request, FreeSet& free, FreeSet::iterator first) {
  if (!in_request_) return first;
  const std::optional<uint64_t> expected = expected_block();
  for (auto it = first;; it = request.pool->first(request.stream, request.size)) {
    if (it == free.end() || it->stream != request.stream) return it;
    if (expected) {
      const auto chosen = learn_tie(free, it, *expected);
      if (chosen != free.end()) return chosen;
    }
    if (!learn_slack(request, it->block, expected)) return it;
  }
}

// Where the recorded request found its block, if it found a free one.
std::optional<uint64_t> RecordedRun::expected_block() const {
  if (events_[end_].action != Action::kAlloc) return std::nullopt;
  for (size_t i = begin_; i < end_; i++) {
    if (events_[i].action == Action::kSegmentAlloc || events_[i].action == Action::kSegmentMap) return std::nullopt;
  }
  return events_[end_].address;
}

// The expected one of the blocks that tie with the first; none if it is not among them.
FreeSet::iterator RecordedRun::learn_tie(FreeSet& free, FreeSet::iterator first, uint64_t expected) {
  auto chosen = free.end();
  auto last = first;
  for (; last != free.end() && last->stream == first->stream && last->size == first->size; ++last) {
    if (last != first && last->counter >= old_counters_) break;
    if (last->address == expected) chosen = last;
  }
  if (chosen == free.end() || first->counter >= old_counters_) return chosen == first ? first : free.end();
  for (auto it = first; it != last; ++it) {
    if (it->counter != chosen->counter) lessons_.ties.emplace_back(chosen->counter, it->counter);
  }
  // Pieces of one segment are taken by address.
  for (auto it = first; it != chosen; ++it) {
    if (it->counter == chosen->counter) return free.end();
  }
  return chosen;
}

// Segments of one size whose counters are older than the history were released in their order.
void RecordedRun::arrange(std::vector<Block*>& victims) {
  std::unordered_map<uint64_t, size_t> places;
  for (const size_t i : releases_ahead()) places.emplace(events_[i].address, i);
  const auto place = [&](const Block* block) {
    const auto it = places.find(block->address);
    return it == places.end() ? events_.size() : it->second;
  };
  const auto ties = [&](const Block* a, const Block* b) {
    return a->stream == b->stream && a->size == b->size && a->counter < old_counters_ && b->counter < old_counters_ &&
           a->counter != b->counter;
  };
  for (size_t begin = 0; begin < victims.size();) {
    size_t end = begin + 1;
    while (end < victims.size() && ties(victims[begin], victims[end])) end++;
    std::stable_sort(victims.begin() + begin, victims.begin() + end,
                     [&](const Block* a, const Block* b) { return place(a) < place(b); });
    for (size_t i = begin + 1; i < end && place(victims[i]) < events_.size(); i++) {
      lessons_.ties.emplace_back(victims[i - 1]->counter, victims[i]->counter);
    }
    begin = end;
  }
}

// An old block of the large pool may have up to 1 MiB more than was asked for, which makes the free one behind it
// smaller, and begin later.
bool RecordedRun::learn_slack(const Request& request, Block* candidate, std::optional<uint64_t> expected) {
  if (expected) {
    Block* holder = correction_.block_at(*expected);
    if (holder != nullptr && holder->is_free() && holder->address < *expected && holder->previous != nullptr &&
        holder->previous->room >= *expected - holder->address) {
      grow(holder->previous, *expected - holder->address);
      return true;
    }
    if (candidate->address == *expected) return false;
  }
  // The recorded allocator passed over the candidate: it was too small.
  Block* old = candidate->previous;
  const uint64_t bytes = candidate->size - request.size + kLeastBlock;
  if (old == nullptr || bytes > old->room || candidate->size - bytes <= kMostSmall) return false;
  grow(old, bytes);
  return true;
}

void RecordedRun::grow(Block* block, uint64_t bytes) {
  Block* rest = block->next;
  const int64_t calls = rest->calls;
  rest->pool->erase(rest);
  block->size += bytes;
  block->room -= bytes;
  rest->address += bytes;
  rest->size -= bytes;
  rest->pool->insert(rest);
  rest->calls = calls;
  lessons_.slack[block->address] += bytes;
}

// The recorded allocator took new address space though there seemed to be room: there was less of it.
void RecordedRun::learn_range(uint64_t address, uint64_t recorded) {
  const Block* other = correction_.block_at(recorded);
  if (other != nullptr && (other->state != BlockState::kUnmapped || other->address == recorded)) return;
  const Block* block = correction_.block_at(address);
  if (block == nullptr) return;
  const Block* first = block->previous != nullptr && block->previous->is_free() ? block->previous : block;
  const Segment* range = block->segment;
  const uint64_t bytes = (first->address - range->base + request_.size - 1) / range->page * range->page;
  if (!lessons_.range_bytes || *lessons_.range_bytes > bytes) lessons_.range_bytes = bytes;
}

}  // namespace torchreel
