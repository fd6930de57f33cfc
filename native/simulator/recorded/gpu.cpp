// The device of a recorded run: it gives and refuses as the recorded one did.
#include "simulator/recorded/run.h"

namespace torchreel::simulator {

bool RecordedRun::grants(Simulator&, const Request&) {
  const RecordedEvent* next = peek();
  if (next == nullptr) return events_[end_].action == Action::kAlloc;
  return next->action == Action::kSegmentAlloc || next->action == Action::kSegmentMap;
}

std::optional<uint64_t> RecordedRun::allocate(const Request& request) {
  const RecordedEvent* next = peek();
  if (next == nullptr || next->action == Action::kSegmentMap) {
    // Nothing was taken from the device, and the recorded request was served all the same.
    if (next != nullptr || events_[end_].action == Action::kAlloc) {
      differ(next != nullptr ? at_ : end_, Action::kSegmentAlloc, 0, request.segment_size);
    }
    return std::nullopt;
  }
  if (next->action != Action::kSegmentAlloc) return std::nullopt;
  if (next->size != request.segment_size || next->stream != request.stream ||
      !correction_.is_vacant(next->address, next->size)) {
    differ(at_, Action::kSegmentAlloc, next->address, request.segment_size);
    return std::nullopt;
  }
  segment_events_.matched++;
  consume(at_);
  return next->address;
}

bool RecordedRun::map(uint64_t address, uint64_t bytes) {
  if (correcting_) return true;
  const RecordedEvent* next = peek();
  if (next == nullptr || next->action == Action::kSegmentAlloc) {
    if (next != nullptr || events_[end_].action == Action::kAlloc) {
      differ(next != nullptr ? at_ : end_, Action::kSegmentMap, address, bytes);
    }
    return false;
  }
  if (next->action != Action::kSegmentMap) return false;
  if (next->address != address || next->size != bytes) {
    if (learns_) learn_range(address, next->address);
    differ(at_, Action::kSegmentMap, address, bytes);
    return false;
  }
  segment_events_.matched++;
  consume(at_);
  return true;
}

// The address space whose first page is mapped next, here or later.
uint64_t RecordedRun::reserve(const Request& request, uint64_t) {
  const bool small = request.pool->small;
  for (size_t i = at_; i < events_.size(); i++) {
    const RecordedEvent& event = events_[i];
    if (event.action != Action::kSegmentMap || event.stream != request.stream || done_[i]) continue;
    if (event.size % simulator_.rules().page_size(small) != 0 || (small && event.size > kSmallSegment)) continue;
    const Block* block = correction_.block_at(event.address);
    if (block == nullptr || (block->state == BlockState::kUnmapped && block->address != event.address)) {
      return event.address;
    }
  }
  return next_made_up_ += kMostBytes;
}

void RecordedRun::free(const Block& block) { release({block.address, block.size, block.stream, block.pool, false}); }

void RecordedRun::unmap(const Block& block, uint64_t address, uint64_t bytes) {
  release({address, bytes, block.stream, block.pool, true});
}

void RecordedRun::release(const Released& released) {
  if (correcting_) return;
  const Action action = released.mapped ? Action::kSegmentUnmap : Action::kSegmentFree;
  const auto is_it = [&](size_t i) {
    return !done_[i] && events_[i].action == action && events_[i].address == released.address &&
           events_[i].size == released.size;
  };
  if (peek() != nullptr && is_it(at_)) {
    segment_events_.matched++;
    return consume(at_);
  }
  for (size_t i = at_; i < end_; i++) {
    if (!is_it(i)) continue;
    differ(at_, action, released.address, released.size);
    return consume(i);
  }
  segment_events_.extra++;
  differ(at_, action, released.address, released.size);
  released_.push_back(released);
}

void RecordedRun::synchronize(Simulator&) {
  while (peek() != nullptr && peek()->action == Action::kFreeCompleted) complete(at_);
}

// As many rounds as were recorded: the limit from which garbage is counted is in no file. Releases that look like a
// round may have made room instead, and did if what comes after them makes sense only then.
uint64_t RecordedRun::garbage(Simulator&) {
  if (peek() == nullptr || peek()->action != Action::kSegmentFree) return 0;
  const auto ahead = releases_ahead();
  const size_t ties = lessons_.ties.size();
  BlockSet gone;
  uint64_t bytes = 0;
  uint64_t most = 0;
  uint64_t wanted = 0;
  bool fits = makes_room(ahead, gone);
  for (auto& round : simulator_.garbage_rounds()) {
    if (!announced(ahead, gone.size(), round)) break;
    most = bytes + 1;
    for (const Block* block : round) bytes += block->size;
    gone.insert(round.begin(), round.end());
    if (!makes_room(ahead, gone)) continue;
    wanted = most;
    fits = true;
  }
  // What was only considered teaches nothing.
  lessons_.ties.resize(ties);
  return fits ? wanted : most;
}

// Whether the releases ahead, without the garbage that is the first of them, are those of a request from there on: none
// if the device has room now, else blocks too large to be split, if they were not enough everything, or everything.
bool RecordedRun::makes_room(const std::vector<size_t>& ahead, BlockSet gone) {
  const size_t after = ahead.back() + 1;
  const bool granted = after < end_ && is_acquisition(events_[after].action);
  if (granted && gone.size() == ahead.size()) return true;
  const auto oversize = simulator_.oversize_victims(request_, gone);
  if (announced(ahead, gone.size(), oversize)) {
    uint64_t bytes = 0;
    for (const Block* block : oversize) bytes += block->size;
    gone.insert(oversize.begin(), oversize.end());
    const bool is_enough = granted && bytes >= simulator_.rules().oversize_bytes(request_.size);
    const bool goes_on = !granted && (after < end_ || request_.owner->large.owner != 0);
    if (gone.size() == ahead.size() && (is_enough || goes_on)) return true;
  }
  const auto rest = everything_cached(gone);
  return gone.size() + rest.size() == ahead.size() && announced(ahead, gone.size(), rest);
}

// Whether just these blocks are released next; while the order is being learned, in whichever.
bool RecordedRun::announced(const std::vector<size_t>& ahead, size_t from, std::vector<Block*> victims) const {
  if (from + victims.size() > ahead.size()) return false;
  for (size_t i = 0; i < victims.size(); i++) {
    const uint64_t address = events_[ahead[from + i]].address;
    const auto end = learns_ ? victims.end() : victims.begin() + i + 1;
    const auto it = std::find_if(victims.begin() + i, end, [&](Block* block) { return block->address == address; });
    if (it == end) return false;
    std::swap(victims[i], *it);
  }
  return true;
}

bool RecordedRun::releases_oversize(Simulator&, const Request& request) {
  if (parted_) return false;
  auto victims = simulator_.oversize_victims(request);
  const bool is_cut = begin_ == 0 && mid_run_;
  if (is_cut) victims.resize(std::min(victims.size(), releases_ahead().size()));
  // What begins otherwise is the release of everything, by a user who emptied the cache just before.
  return victims.empty() || peek() == nullptr || announced(releases_ahead(), 0, victims);
}

bool RecordedRun::is_enough(uint64_t released, uint64_t wanted) {
  // The first ones may have been released before the history began.
  const bool is_cut = begin_ == 0 && mid_run_;
  return released >= wanted || (is_cut && peek() != nullptr && !is_release(peek()->action));
}

bool RecordedRun::releases_cached(Simulator&, const Request& request) {
  if (parted_) return false;
  for (size_t i = at_; i < end_; i++) {
    if (!done_[i] && events_[i].action != Action::kFreeCompleted) return true;
  }
  // A request within a captured graph gives up at once, and no file says whether there was one.
  return request.owner->large.owner == 0 && events_[end_].pool >= 0 && !simulator_.rules().throw_on_oom;
}

std::vector<PoolPair*> RecordedRun::released_pools(Simulator&) {
  std::vector<PoolPair*> pools;
  bool with_default = !in_release_ahead_of_private();
  if (with_default) pools.push_back(simulator_.pools()[0].get());
  for (size_t i = at_; i < end_; i++) {
    if (done_[i] || !is_release(events_[i].action)) continue;
    const Segment* segment = simulator_.segment_at(events_[i].address);
    if (segment == nullptr || segment->head->pool->owner == 0) continue;
    PoolPair* owner = simulator_.pools()[segment->head->pool->owner].get();
    if (std::find(pools.begin(), pools.end(), owner) == pools.end()) pools.push_back(owner);
  }
  return pools;
}

// Whether the next releases concern private pools alone: the cache was emptied from within one.
bool RecordedRun::in_release_ahead_of_private() {
  bool any = false;
  for (const size_t i : releases_ahead()) {
    const Segment* segment = simulator_.segment_at(events_[i].address);
    if (segment == nullptr || segment->head->pool->owner == 0) return false;
    any = true;
  }
  return any;
}

}  // namespace torchreel::simulator
