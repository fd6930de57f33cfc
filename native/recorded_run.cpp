#include "recorded_run.h"

namespace torchreel {

namespace {

bool is_release(Action action) { return action == Action::kSegmentFree || action == Action::kSegmentUnmap; }
bool is_acquisition(Action action) { return action == Action::kSegmentAlloc || action == Action::kSegmentMap; }

}  // namespace

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
      // Without a stream to wait for the block is free at once, under the same lock.
      if (at_ < events_.size() && events_[at_].action == Action::kFreeCompleted &&
          events_[at_].address == event.address) {
        complete_free(events_[at_++]);
      }
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
  while (ahead(is_release)) release_run();
  finish_window();
}

// One release of all that is cached, and the completed frees that come with it.
void RecordedRun::release_run() {
  const int64_t before = consumed_;
  simulator_.empty_cache();
  restore();
  if (consumed_ > before) return;
  // The simulator has nothing of what was released.
  synchronize(simulator_);
  for (const size_t event : releases_ahead()) correct(event);
}

void RecordedRun::malloc_window() {
  for (;;) {
    request_ = wanted();
    if (!ahead(is_release)) {
      for (size_t i = at_; i < end_; i++) {
        if (!done_[i] && events_[i].action == Action::kFreeCompleted) complete(i);
      }
      break;
    }
    const bool acquires = ahead(is_acquisition) || events_[end_].action == Action::kOom;
    if (acquires && !simulator_.would_find(request_)) {
      // What was freed before the search could not serve the request; what could was freed when it had failed.
      while (peek() != nullptr && peek()->action == Action::kFreeCompleted && !serves(*peek(), request_)) complete(at_);
      break;
    }
    release_run();
  }
  in_request_ = true;
  Block* block = simulator_.malloc(request_);
  in_request_ = false;
  settle(block);
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
    if (recorded_oom || !was_cut_off(last.address)) {
      differ(end_, Action::kAlloc, block->address, block->requested);
    } else {
      allocs_.matched++;
    }
    correcting_ = true;
    simulator_.free(block);
    correcting_ = false;
  } else if (!recorded_oom) {
    differ(end_, Action::kOom, 0, request_.size);
  }
  finish_window();
  if (recorded_oom) return;
  correcting_ = true;
  block = correction_.place(last.address, request_);
  correcting_ = false;
  if (block != nullptr) live_[last.address] = block;
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
  for (size_t i = at_; i < end_; i++) {
    if (is_acquisition(events_[i].action) && events_[i].pool >= 0) return events_[i].pool;
  }
  if (event.action == Action::kOom) return 0;
  const Segment* segment = simulator_.segment_at(event.address);
  return segment == nullptr ? 0 : segment->head->pool->owner;
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
}

void RecordedRun::complete(size_t index) {
  consume(index);
  complete_free(events_[index]);
}

// Whether the request would find the block of a free_completed, joined with its free neighbours.
bool RecordedRun::serves(const RecordedEvent& event, const Request& request) {
  const auto it = live_.find(event.address);
  if (it == live_.end()) return false;
  const Block* block = it->second;
  uint64_t size = block->size;
  for (const Block* neighbour : {block->previous, block->next}) {
    if (neighbour != nullptr && neighbour->is_free()) size += neighbour->size;
  }
  const Rules& rules = simulator_.rules();
  return block->pool == request.pool && block->stream == request.stream && size >= request.size &&
         (rules.oversize(request.size) || !rules.oversize(size)) &&
         (!rules.oversize(request.size) || size < request.size + rules.max_non_split_rounding);
}

// A history that begins within a request has lost its segment_alloc, and the reason for it.
bool RecordedRun::was_cut_off(uint64_t address) {
  if (begin_ != 0 || !mid_run_) return false;
  const Block* block = correction_.block_at(address);
  return block != nullptr && block->is_free() && !block->is_split() && !block->segment->expandable() &&
         block->address == address && block->size == request_.segment_size && block->pool == request_.pool &&
         block->stream == request_.stream;
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

}  // namespace torchreel
