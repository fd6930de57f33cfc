#include "decode/memory/pairing.h"

#include <algorithm>

namespace torchreel {

using namespace layout;

MemoryPairing::MemoryPairing(const Definitions& definitions, uint64_t start_tick, const Windows& windows,
                             CallRows& rows)
    : windows_(windows), rows_(rows) {
  for (const auto& block : definitions.old_blocks) {
    auto bytes = static_cast<int64_t>(block.bytes);
    uint32_t category = category_id(block.category);
    bool added = living_.emplace(block.address, LiveBlock{bytes, next_id_, 0, category}).second;
    if (!added) continue;
    total_bytes_ += bytes;
    events_.push_back(
        {start_tick, block.address, bytes, total_bytes_, -1, -1, kNone, 0, category, MemoryAction::kPreexisting});
    next_id_++;
  }
}

uint32_t MemoryPairing::category_id(const std::string& category) {
  if (category.empty()) return kNone;
  auto known = std::find(categories_.begin(), categories_.end(), category);
  if (known == categories_.end()) {
    categories_.push_back(category);
    return static_cast<uint32_t>(categories_.size() - 1);
  }
  return static_cast<uint32_t>(known - categories_.begin());
}

void MemoryPairing::restrict_to_windows() {
  living_shown_ = windows_.show_all();
  events_.clear();
}

void MemoryPairing::settle(uint64_t before) {
  std::stable_sort(waiting_.begin(), waiting_.end(), [](auto& a, auto& b) { return a.tick < b.tick; });
  auto later = std::partition_point(waiting_.begin(), waiting_.end(), [&](auto& e) { return e.tick < before; });
  for (auto event = waiting_.begin(); event != later; ++event) {
    if (!living_shown_ && event->tick >= windows_.begin()) show_living();
    if (event->is_segment) {
      settle_segment(*event);
    } else {
      settle_block(*event);
    }
  }
  waiting_.erase(waiting_.begin(), later);
}

void MemoryPairing::finish() {
  settle(~uint64_t{0});
  if (!living_shown_) show_living();
}

// What was in use when the first window opened is older than what the window shows.
void MemoryPairing::show_living() {
  living_shown_ = true;
  next_id_ = 0;
  int64_t total = 0;
  for (auto& [address, block] : living_) {
    total += block.bytes;
    block.alloc = next_id_++;
    events_.push_back({windows_.begin(), address, block.bytes, total, -1, -1, kNone, block.stack, block.category,
                       MemoryAction::kPreexisting});
  }
}

void MemoryPairing::settle_segment(const MemoryEvent& event) {
  auto bytes = static_cast<int64_t>(event.bytes);
  if (event.is_free) {
    auto known = segments_.find(event.address);
    bytes = known != segments_.end() ? known->second : -1;
    if (known != segments_.end()) segments_.erase(known);
  } else if (!segments_.emplace(event.address, bytes).second) {
    return;  // told again when a paused recording went on
  }
  if (!windows_.show(event.tick)) return;
  int64_t op = event.row != kNoRow ? rows_[event.row].id : -1;
  events_.push_back({event.tick, event.address, bytes, total_bytes_, op, -1, event.thread, event.stack, kNone,
                     event.is_free ? MemoryAction::kSegmentFree : MemoryAction::kSegmentAlloc});
  next_id_++;
}

void MemoryPairing::settle_block(const MemoryEvent& event) {
  auto live = living_.find(event.address);
  PairedEvent paired{
      event.tick, event.address, -1,          0,     -1,
      -1,         event.thread,  event.stack, kNone, event.is_free ? MemoryAction::kFree : MemoryAction::kAlloc};
  int64_t change = 0;
  if (live != living_.end()) {
    // An alloc where a block lives means that its free was not seen.
    change -= live->second.bytes;
    if (event.is_free) {
      paired.bytes = live->second.bytes;
      paired.alloc = live->second.alloc;
      paired.category = live->second.category;
    }
    living_.erase(live);
  }
  if (!event.is_free) {
    paired.bytes = static_cast<int64_t>(event.bytes);
    total_bytes_ += change;
    change = paired.bytes;
    living_[event.address] = {paired.bytes, next_id_, event.stack, kNone};
  }
  total_bytes_ += change;
  paired.total = total_bytes_;
  if (event.row != kNoRow) {
    paired.op = rows_[event.row].id;
    charge(event, change);
  }
  if (!windows_.show(event.tick)) {
    if (!event.is_free) living_[event.address].alloc = -1;
    return;
  }
  next_id_++;
  events_.push_back(paired);
}

// To the call, and to those around it that had not ended.
void MemoryPairing::charge(const MemoryEvent& event, int64_t change) {
  rows_[event.row].self_alloc += change;
  for (int32_t row = event.row; row != kNoRow; row = rows_[row].parent_row) {
    if (!rows_[row].ended || rows_[row].end >= event.tick) rows_[row].alloc += change;
  }
}

void MemoryPairing::renumber(const std::vector<int32_t>& moved) {
  for (MemoryEvent& event : waiting_) event.row = event.row == kNoRow ? kNoRow : moved[event.row];
}

}  // namespace torchreel
