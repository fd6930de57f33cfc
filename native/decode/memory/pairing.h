// Pairs allocs and frees, counts the bytes in use, and charges them to the calls. No torch, no Python.
//
//     alloc 0x10, 64 bytes  ──► living: {0x10: 64 bytes, alloc 0}     total 64, charged to the call and those around it
//     free  0x10            ──► bytes and alloc of the living block   total 0
//
// A block may be freed by another thread than the one that allocated it, and threads are decoded block by block. So the
// EventReader leaves events here, and they wait until a promise in the file says that every event before them has been
// read. The Decoder owns the pairing and settles it at each promise; the tables `allocs`, `blocks` and `segments` are
// made of it.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "decode/calls/call_rows.h"
#include "decode/spool/definitions.h"
#include "decode/spool/windows.h"

namespace torchreel {

// As a thread recorded it.
struct MemoryEvent {
  uint64_t tick;
  uint64_t address;
  uint64_t bytes;
  int32_t row;
  uint32_t thread;
  uint32_t stack;
  bool is_free;
  bool is_segment;  // of the caching heap
};

enum class MemoryAction : int8_t { kAlloc, kFree, kPreexisting, kSegmentAlloc, kSegmentFree };

// As the table `allocs` has it.
struct PairedEvent {
  uint64_t tick;
  uint64_t address;
  int64_t bytes;
  int64_t total;
  int64_t op;
  int64_t alloc;
  uint32_t thread;
  uint32_t stack;
  uint32_t category;
  MemoryAction action;
};

struct LiveBlock {
  int64_t bytes;
  int64_t alloc;
  uint32_t stack;
  uint32_t category;
};

class MemoryPairing {
 public:
  // Begins with the blocks that are older than the recording.
  MemoryPairing(const Definitions& definitions, uint64_t start_tick, const Windows& windows, CallRows& rows);

  // The windows are set now: blocks are told that live when the first of them opens.
  void restrict_to_windows();
  void add(const MemoryEvent& event) { waiting_.push_back(event); }
  void settle(uint64_t before);
  // No more events will come.
  void finish();
  // After rows were dropped.
  void renumber(const std::vector<int32_t>& moved);

  const std::vector<PairedEvent>& events() const { return events_; }
  void clear_events() { events_.clear(); }
  // The id of the first of the events.
  int64_t first_id() const { return next_id_ - static_cast<int64_t>(events_.size()); }
  const std::vector<std::string>& categories() const { return categories_; }
  const std::unordered_map<uint64_t, LiveBlock>& living() const { return living_; }
  // Bytes by address.
  const std::unordered_map<uint64_t, int64_t>& segments() const { return segments_; }

 private:
  void settle_segment(const MemoryEvent& event);
  void settle_block(const MemoryEvent& event);
  void charge(const MemoryEvent& event, int64_t change);
  void show_living();
  uint32_t category_id(const std::string& category);

  const Windows& windows_;
  CallRows& rows_;
  std::vector<MemoryEvent> waiting_;
  std::vector<PairedEvent> events_;
  std::unordered_map<uint64_t, LiveBlock> living_;
  std::unordered_map<uint64_t, int64_t> segments_;
  std::vector<std::string> categories_;
  int64_t next_id_ = 0;
  int64_t total_bytes_ = 0;
  bool living_shown_ = true;
};

}  // namespace torchreel
