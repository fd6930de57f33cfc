#include "simulator/recorded/run.h"

namespace torchreel::simulator {

RecordedRun::RecordedRun(const Rules& rules, const std::vector<RecordedEvent>& events, const StartState& start,
                         bool learns)
    : events_(events), simulator_(rules, *this), correction_(simulator_, live_), done_(events.size()), learns_(learns) {
  for (const RecordedEvent& event : events) {
    if (event.action == Action::kAlloc) allocs_.total++;
    if (is_release(event.action) || is_acquisition(event.action)) segment_events_.total++;
  }
  mid_run_ = !start.segments.empty();
  old_counters_ = start.load(simulator_, live_);
  simulator_.learn_ties(learns);
}

void RecordedRun::run() {
  while (at_ < events_.size()) step();
}

void RecordedRun::step() {
  const RecordedEvent& event = events_[at_];
  switch (event.action) {
    case Action::kFreeRequested:
      request_free(event);
      at_++;
      break;
    case Action::kFree:
      complete_free(event);
      at_++;
      break;
    case Action::kAlloc:
    case Action::kOom:
    case Action::kFreeCompleted:
    case Action::kSegmentAlloc:
    case Action::kSegmentFree:
    case Action::kSegmentMap:
    case Action::kSegmentUnmap: window(); break;
    default: at_++;
  }
}

void RecordedRun::request_free(const RecordedEvent& event) {
  const auto it = live_.find(event.address);
  if (it != live_.end() && it->second->state == BlockState::kAllocated) simulator_.request_free(it->second);
}

void RecordedRun::complete_free(const RecordedEvent& event) {
  const auto it = live_.find(event.address);
  if (it == live_.end()) return;
  Block* block = it->second;
  live_.erase(it);
  if (block->state == BlockState::kAllocated) {
    simulator_.free(block);
  } else {
    simulator_.complete_free(block);
  }
}

void RecordedRun::window() {
  end_ = at_;
  while (end_ < events_.size() && (events_[end_].action == Action::kFreeCompleted || is_release(events_[end_].action) ||
                                   is_acquisition(events_[end_].action))) {
    end_++;
  }
  begin_ = at_;
  parted_ = false;
  consumed_releases_ = 0;
  const bool requests =
      end_ < events_.size() && (events_[end_].action == Action::kAlloc || events_[end_].action == Action::kOom);
  if (requests) {
    malloc_window();
    at_ = end_ + 1;
  } else {
    release_window();
    at_ = end_;
  }
}

// What the recorded allocator did without a request: the user emptied the cache.
void RecordedRun::release_window() {
  request_ = simulator_.request(0, 0, 0);
  while (ahead(is_release) && release_run()) {
  }
  finish_window();
}

// One release of all that is cached, and the completed frees that come with it. False if none is next: in a damaged
// history, memory may come before it that nobody asked for.
bool RecordedRun::release_run() {
  const int64_t before = consumed_;
  simulator_.empty_cache();
  restore();
  if (consumed_ > before) return true;
  // The simulator has nothing of what was released.
  synchronize(simulator_);
  const auto releases = releases_ahead();
  for (const size_t event : releases) correct(event);
  return !releases.empty();
}

void RecordedRun::malloc_window() {
  request_ = wanted();
  const bool acquires = ahead(is_acquisition) || events_[end_].action == Action::kOom;
  while (ahead(is_release)) {
    complete_before_search();
    if (acquires && !simulator_.would_find(request_)) break;
    if (learns_ && acquires && !releases_everything() && learn_slack(request_, simulator_.search(request_), {}))
      continue;
    if (!release_run()) break;
    request_ = wanted();
  }
  complete_before_search();
  // Nothing tells what an allocator had tried that searches no more, or gives up, as the history begins.
  const bool is_cut = begin_ == 0 && mid_run_;
  const bool searched = acquires && (is_cut || simulator_.rules().releases_lock) && simulator_.would_find(request_);
  if (searched && events_[end_].action == Action::kOom) return finish_window();
  if (was_cut_off()) {
    allocs_.matched++;
    return place();
  }
  if (const size_t count = restored_blocks(); count > 1) return restore_checkpoint(count);
  in_request_ = true;
  Block* block = searched || found_by_growing() ? simulator_.malloc_by_growing(request_) : simulator_.malloc(request_);
  in_request_ = false;
  settle(block);
}

// The frees that were completed when the request came. If its search failed, one that could have served it was
// completed only after that; and if it was not released to make room, one that should have been, too.
void RecordedRun::complete_before_search() {
  const bool fails = ahead(is_release) || events_[end_].action == Action::kOom;
  while (peek() != nullptr && peek()->action == Action::kFreeCompleted) {
    if (fails && (serves(*peek(), request_) || would_be_released(*peek())) && !simulator_.would_find(request_)) break;
    complete(at_);
  }
}

// All that is cached, in the order in which it is released; without what is gone by then.
std::vector<Block*> RecordedRun::everything_cached(const BlockSet& gone) {
  std::vector<Block*> victims;
  for (PoolPair* owner : released_pools(simulator_)) {
    const bool is_default = owner->large.owner == 0;
    for (Pool* pool : {is_default ? &owner->large : &owner->small, is_default ? &owner->small : &owner->large}) {
      const auto more = simulator_.cached_victims(*pool);
      std::copy_if(more.begin(), more.end(), std::back_inserter(victims),
                   [&](Block* block) { return !gone.contains(block); });
    }
  }
  return victims;
}

// Whether all that is cached is released next, which a user who empties the cache does.
bool RecordedRun::releases_everything() {
  const auto victims = everything_cached({});
  const auto ahead = releases_ahead();
  return ahead.size() == victims.size() && announced(ahead, 0, victims);
}

// Whether the recorded request, after its search and a release, found room at the end of a run of mapped memory that
// was large enough without any more of it: then it has a place that no search would give.
bool RecordedRun::found_by_growing() {
  if (!request_.expandable || consumed_releases_ == 0 || ahead(is_acquisition)) return false;
  const uint64_t address = events_[end_].address;
  const Block* searched = simulator_.search(request_);
  const Block* grown = simulator_.find_room(request_);
  return events_[end_].action == Action::kAlloc && grown != nullptr && grown->is_free() &&
         grown->size >= request_.size && grown->address == address &&
         (searched == nullptr || searched->address != address);
}

// Holds the outcome of a request against the recorded one.
void RecordedRun::settle(Block* block) {
  const RecordedEvent& last = events_[end_];
  const bool recorded_oom = last.action == Action::kOom;
  if (!recorded_oom && block != nullptr && block->address == last.address) {
    allocs_.matched++;
    live_[last.address] = block;
    finish_window();
    return;
  }
  if (block != nullptr) {
    differ(end_, Action::kAlloc, block->address, block->requested);
    correcting_ = true;
    simulator_.free(block);
    correcting_ = false;
  } else if (!recorded_oom) {
    differ(end_, Action::kOom, 0, request_.size);
  }
  finish_window();
  if (!recorded_oom) place();
}

// Puts the block of the window's alloc where it was recorded.
void RecordedRun::place() {
  correcting_ = true;
  Block* block = correction_.place(events_[end_].address, request_);
  correcting_ = false;
  if (block != nullptr) live_[events_[end_].address] = block;
}

// Whatever of the window was not reproduced is done now.
void RecordedRun::finish_window() {
  for (size_t i = begin_; i < end_; i++) {
    if (!done_[i]) correct(i);
  }
  restore();
}

void RecordedRun::correct(size_t index) {
  const RecordedEvent& event = events_[index];
  done_[index] = true;
  if (event.action == Action::kFreeCompleted) return complete_free(event);
  differ(index, Action::kOther, 0, 0);
  Request request = request_;
  request.stream = event.stream;
  const bool small = event.size <= kSmallSegment;
  PoolPair& owner = event.pool >= 0 ? simulator_.pool(event.pool) : *request_.owner;
  request.pool = small ? &owner.small : &owner.large;
  correcting_ = true;
  switch (event.action) {
    case Action::kSegmentAlloc: correction_.add_segment(event.address, event.size, request); break;
    case Action::kSegmentFree: correction_.remove_segment(event.address); break;
    case Action::kSegmentMap: correction_.map(event.address, event.size, request); break;
    case Action::kSegmentUnmap: correction_.unmap(event.address, event.size); break;
    default: break;
  }
  correcting_ = false;
}

// Gives back what the simulator released and the recorded allocator did not.
void RecordedRun::restore() {
  correcting_ = true;
  for (const Released& released : released_) {
    Request request = request_;
    request.pool = released.pool;
    request.stream = released.stream;
    if (released.mapped) {
      correction_.map(released.address, released.size, request);
    } else {
      correction_.add_segment(released.address, released.size, request);
    }
  }
  released_.clear();
  correcting_ = false;
}

// The request of the window. Whether it may use expandable segments is told by what it took from the device.
Request RecordedRun::wanted() {
  const RecordedEvent& last = events_[end_];
  Request request = simulator_.request(last.size, last.stream, pool_of(last));
  for (size_t i = at_; i < end_; i++) {
    if (events_[i].action == Action::kSegmentAlloc) request.expandable = false;
    if (events_[i].action == Action::kSegmentMap) request.expandable = true;
  }
  return request;
}

// The pool of a request; where the file does not say, that of the segment in which it ended up.
int RecordedRun::pool_of(const RecordedEvent& event) {
  if (event.pool >= 0) return event.pool;
  bool acquires = event.action == Action::kOom;
  for (size_t i = at_; i < end_; i++) {
    if (!is_acquisition(events_[i].action)) continue;
    if (events_[i].pool >= 0) return events_[i].pool;
    acquires = true;
  }
  if (acquires) return pool_without(event);
  const Segment* segment = simulator_.segment_at(event.address);
  return segment == nullptr ? 0 : segment->head->pool->owner;
}

// A pool that had no free block for the request, and would have done what was recorded: the default one, if it may be.
int RecordedRun::pool_without(const RecordedEvent& event) {
  const auto gives_up = [&](const Request& request) {
    return event.action != Action::kOom || ahead(is_release) || request.owner->large.owner != 0 ||
           (simulator_.cached_victims(simulator_.pool(0).large).empty() &&
            simulator_.cached_victims(simulator_.pool(0).small).empty());
  };
  for (size_t i = 0; i < simulator_.pools().size(); i++) {
    const Request request = simulator_.request(event.size, event.stream, static_cast<int>(i));
    if (!simulator_.would_find(request) && gives_up(request)) return static_cast<int>(i);
  }
  return 0;
}

bool RecordedRun::ahead(bool (*kind)(Action)) const {
  for (size_t i = at_; i < end_; i++) {
    if (!done_[i] && kind(events_[i].action)) return true;
  }
  return false;
}

// The releases that come next, up to something else.
std::vector<size_t> RecordedRun::releases_ahead() const {
  std::vector<size_t> indices;
  for (size_t i = at_; i < end_ && (done_[i] || is_release(events_[i].action)); i++) {
    if (!done_[i]) indices.push_back(i);
  }
  return indices;
}

// The next event of the window that has not been reproduced yet.
const RecordedEvent* RecordedRun::peek() {
  while (at_ < end_ && done_[at_]) at_++;
  return at_ < end_ ? &events_[at_] : nullptr;
}

void RecordedRun::consume(size_t index) {
  done_[index] = true;
  consumed_++;
  if (is_release(events_[index].action)) consumed_releases_++;
}

void RecordedRun::complete(size_t index) {
  consume(index);
  complete_free(events_[index]);
}

namespace {

// Bytes of a block once it is free and joined with its neighbours.
uint64_t size_when_free(const Block* block) {
  uint64_t size = block->size;
  for (const Block* neighbour : {block->previous, block->next}) {
    if (neighbour != nullptr && neighbour->is_free()) size += neighbour->size;
  }
  return size;
}

}  // namespace

// Whether garbage is released next: all that is cached would be released by stream and size. Frees that are completed
// before that were completed before the search.
bool RecordedRun::releases_garbage() {
  if (!simulator_.rules().counts_ages) return false;
  std::pair<uint64_t, uint64_t> last{};
  for (size_t i = at_; i < end_; i++) {
    const RecordedEvent& event = events_[i];
    if (done_[i] || event.action != Action::kSegmentFree) continue;
    const Segment* segment = simulator_.segment_at(event.address);
    if (segment == nullptr || segment->head->pool != &simulator_.pool(0).large) break;
    const std::pair key{segment->head->stream, segment->size};
    if (key < last) return true;
    last = key;
  }
  return false;
}

// Whether the block of a free_completed, once free, would be the one that is released to make room, and was not.
bool RecordedRun::would_be_released(const RecordedEvent& event) {
  const auto it = live_.find(event.address);
  if (it == live_.end()) return false;
  const Block* block = it->second;
  const uint64_t size = size_when_free(block);
  const auto is_victim = [&](const Block* other, uint64_t bytes) {
    return simulator_.rules().oversize(bytes) && other->pool == request_.pool && other->stream == request_.stream &&
           !other->segment->expandable() && bytes == other->segment->size;
  };
  if (!is_victim(block, size) || releases_garbage()) return false;
  const Block* first = nullptr;  // of what was released
  uint64_t least = kUnlimited;
  for (size_t i = at_; i < end_; i++) {
    if (events_[i].action != Action::kSegmentFree) continue;
    const Segment* segment = simulator_.segment_at(events_[i].address);
    if (segment == block->segment) return false;
    if (segment == nullptr || !is_victim(segment->head, segment->size)) break;
    if (first == nullptr) first = segment->head;
    least = std::min(least, segment->size);
  }
  if (first == nullptr) return !simulator_.rules().counts_ages || !ahead(is_release);
  // The smallest one that is large enough goes, else the largest ones.
  const uint64_t wanted = simulator_.rules().oversize_bytes(request_.size);
  return first->segment->size >= wanted ? size >= wanted && size < first->segment->size : size > least;
}

// Whether the request would find the block of a free_completed, joined with its free neighbours.
bool RecordedRun::serves(const RecordedEvent& event, const Request& request) {
  const auto it = live_.find(event.address);
  if (it == live_.end()) return false;
  const Block* block = it->second;
  const uint64_t size = size_when_free(block);
  const Rules& rules = simulator_.rules();
  return block->pool == request.pool && block->stream == request.stream && size >= request.size &&
         (rules.oversize(request.size) || !rules.oversize(size)) &&
         (!rules.oversize(request.size) || size < request.size + rules.max_non_split_rounding);
}

// Whether the history begins within a request and has lost its segment_alloc, and with it the reason for that.
bool RecordedRun::was_cut_off() {
  const RecordedEvent& last = events_[end_];
  if (begin_ != 0 || !mid_run_ || last.action != Action::kAlloc || ahead(is_acquisition)) return false;
  const Block* searched = simulator_.search(request_);
  if (searched != nullptr && searched->address == last.address) return false;
  const Block* block = correction_.block_at(last.address);
  if (block == nullptr || !block->is_free() || block->address != last.address || block->pool != request_.pool ||
      block->stream != request_.stream) {
    return false;
  }
  if (block->segment->expandable()) {
    const uint64_t page = block->segment->page;
    const bool was_mapped = (block->end() - block->segment->base) % page == 0 && block->size - request_.size < page;
    if (block->size < request_.size) return false;
    return searched == nullptr || was_mapped || simulator_.find_room(request_) == block;
  }
  return !block->is_split() && block->size == request_.segment_size;
}

void RecordedRun::differ(size_t event, Action action, uint64_t address, uint64_t size) {
  parted_ = true;
  if (mismatch_) return;
  const RecordedEvent& recorded = events_[std::min(event, events_.size() - 1)];
  mismatch_ = {.event = static_cast<int64_t>(event),
               .recorded_action = recorded.action,
               .recorded_address = recorded.address,
               .recorded_size = recorded.size,
               .simulated_action = action,
               .simulated_address = address,
               .simulated_size = size};
}

}  // namespace torchreel::simulator
