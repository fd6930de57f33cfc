// What a recorded run learns of the state that its history began with, and that no file holds.
#include "simulator/recorded/run.h"

namespace torchreel::simulator {

// The block that was recorded, where what is not known of the start allows it.
FreeSet::iterator RecordedRun::choose(const Request& request, FreeSet::iterator first) {
  FreeSet& free = request.pool->free;
  const std::optional<uint64_t> expected = in_request_ ? expected_block() : std::nullopt;
  for (auto it = first;; it = request.pool->first(request.stream, request.size)) {
    if (it == free.end() || it->stream != request.stream || !in_request_) return it;
    if (it->block->segment->expandable()) {
      return expected ? choose_expandable(request, it, *expected) : simulator_.walk(request, it);
    }
    if (expected) {
      const auto chosen = learn_tie(free, it, *expected);
      if (chosen != free.end()) return chosen;
    }
    if (!learn_slack(request, it->block, expected)) return it;
  }
}

FreeSet::iterator RecordedRun::choose_expandable(const Request& request, FreeSet::iterator first, uint64_t expected) {
  FreeSet& free = request.pool->free;
  const auto walked = simulator_.walk(request, first);
  auto chosen = learn_tie(free, walked, expected);
  if (chosen == free.end()) chosen = learn_walk(request, first, expected);
  if (chosen != free.end()) return chosen;
  learn_tail(request, free, expected);
  return walked;
}

// Which of the blocks that tie at the beginning of the search has to be the first for it to end where it did.
FreeSet::iterator RecordedRun::learn_walk(const Request& request, FreeSet::iterator first, uint64_t expected) {
  FreeSet& free = request.pool->free;
  std::vector<FreeSet::iterator> order;
  size_t ties = 0;
  for (auto it = first; it != free.end() && it->stream == request.stream; ++it) {
    order.push_back(it);
    if (it->size == first->size && it->counter < old_counters_) ties = order.size();
  }
  for (size_t head = 1; head < ties; head++) {
    auto turned = order;
    std::rotate(turned.begin(), turned.begin() + head, turned.begin() + head + 1);
    size_t at = 0;
    while (at + 1 < turned.size() && RebuiltState::room(turned[at + 1]->block) < RebuiltState::room(turned[at]->block))
      at++;
    if (turned[at]->address != expected) continue;
    for (size_t i = 1; i < ties; i++) lessons_.ties.emplace_back(turned[0]->counter, turned[i]->counter);
    return turned[at];
  }
  return free.end();
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
    // One that can grow by more would have been passed over wherever it stood.
    if (it->counter != chosen->counter && RebuiltState::room(it->block) == RebuiltState::room(chosen->block)) {
      lessons_.ties.emplace_back(chosen->counter, it->counter);
    }
  }
  // Pieces of one segment are taken by address.
  for (auto it = first; it != chosen; ++it) {
    if (it->counter == chosen->counter) return free.end();
  }
  return chosen;
}

// Segments of one size whose counters are older than the history were released in their order, or against it.
void RecordedRun::arrange(std::vector<Block*>& victims, bool descending) {
  std::unordered_map<uint64_t, size_t> places;
  for (const size_t i : releases_ahead()) places.emplace(events_[i].address, i);
  const auto place = [&](const Block* block) {
    const bool whole = !block->segment->expandable();
    const auto it = places.find(whole ? block->address : RebuiltState::whole_pages(block).first);
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
    size_t last = begin;  // of those whose place is recorded
    for (size_t i = begin + 1; i < end && place(victims[begin]) < events_.size(); i++) {
      const int64_t before = victims[last]->counter;
      const int64_t after = victims[i]->counter;
      lessons_.ties.emplace_back(descending ? after : before, descending ? before : after);
      if (place(victims[i]) < events_.size()) last = i;
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

// Of blocks that can grow the search takes one that can grow by little. The last one of an address space was taken, so
// there was less of that than of what others could grow by.
void RecordedRun::learn_tail(const Request& request, FreeSet& free, uint64_t expected) {
  const Block* searched = request.expandable ? simulator_.search(request) : nullptr;
  if (searched == nullptr || searched->address == expected) return;
  Block* last = correction_.block_at(expected);
  if (last == nullptr || !last->is_free() || last->pool != request.pool || last->stream != request.stream ||
      last->size < request.size || last->next == nullptr || last->next->next != nullptr ||
      last->next->state != BlockState::kUnmapped) {
    return;
  }
  const Segment* range = last->segment;
  const auto bound = [&](const FreeKey& other, uint64_t less) {
    const Block* after = other.block->next;
    const uint64_t growth = after != nullptr && after->state == BlockState::kUnmapped ? after->size : 0;
    const uint64_t bytes = (last->address - range->base + other.size + growth - less) / range->page * range->page;
    if (bytes < range->size && bytes >= last->end() - range->base) bound_ranges(bytes);
  };
  const auto at = free.find(Pool::key(last));
  if (at == free.end()) return;
  const auto next = std::next(at);
  if (next != free.end() && next->stream == request.stream) bound(*next, 0);
  if (at != request.pool->first(request.stream, request.size)) bound(*std::prev(at), 1);
}

void RecordedRun::bound_ranges(uint64_t bytes) {
  if (!lessons_.range_bytes || *lessons_.range_bytes > bytes) lessons_.range_bytes = bytes;
}

// The recorded allocator took new address space though there seemed to be room: there was less of it.
void RecordedRun::learn_range(uint64_t address, uint64_t recorded) {
  const Block* other = correction_.block_at(recorded);
  if (other != nullptr && (other->state != BlockState::kUnmapped || other->address == recorded)) return;
  const Block* block = correction_.block_at(address);
  if (block == nullptr || !block->segment->expandable()) return;
  const Block* first = block->previous != nullptr && block->previous->is_free() ? block->previous : block;
  const Segment* range = block->segment;
  const uint64_t bytes = (first->address - range->base + request_.size - 1) / range->page * range->page;
  bound_ranges(bytes);
}

}  // namespace torchreel::simulator
