// The calls that are not yet in a table: those that are open, and those that ended since the last batch. No torch, no
// Python.
//
// The Decoder owns them. OpenCalls adds a call when it begins and writes its end; ForwardCalls and MemoryPairing write
// what they find out about it; the table `ops` is made of those that have finished, which are then dropped. Whoever
// remembers a row by its index gets the new index from drop().
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/spool_format.h"

namespace torchreel {

constexpr int32_t kNoRow = -1;

struct Call {
  int64_t id;
  int64_t parent = -1;
  int64_t fwd = -1;
  int64_t seq = -1;
  int64_t alloc = 0;
  int64_t self_alloc = 0;
  uint64_t begin;
  uint64_t end = 0;
  uint64_t children = 0;  // ticks
  uint64_t key = 0;
  uint64_t fwd_torch_thread = 0;
  int32_t parent_row = kNoRow;
  uint32_t thread;
  uint32_t name;
  int32_t depth;
  int32_t step = -1;
  uint32_t module = layout::kNone;
  uint32_t stack = 0;
  uint32_t inputs = layout::kNone;
  uint32_t end_thread = layout::kNone;
  uint32_t counters = layout::kNone;  // of CallCounters
  uint32_t script = layout::kNone;    // the name that tells the modules of TorchScript within which it stands
  int64_t handle = -1;
  int64_t record_id = -1;
  bool ended = false;
  bool cut = false;  // ended with the recording, not by itself
  bool async = false;
  bool of_backward = false;  // module and stack are those of a forward call
  bool hidden = false;       // began outside of the windows
};

// Which rows go into the next batch.
using Finished = std::vector<char>;

class CallRows {
 public:
  explicit CallRows(size_t expected) { rows_.reserve(expected); }

  size_t size() const { return rows_.size(); }
  Call& operator[](int32_t row) { return rows_[static_cast<size_t>(row)]; }
  const Call& operator[](int32_t row) const { return rows_[static_cast<size_t>(row)]; }
  std::vector<Call>::iterator begin() { return rows_.begin(); }
  std::vector<Call>::iterator end() { return rows_.end(); }
  void add(const Call& call) { rows_.push_back(call); }

  // Those that ended before a promise: nothing more will be learned about them.
  Finished finished(uint64_t before) const;
  // Tells their parents how long the finished calls took.
  void charge_parents(const Finished& finished);
  // Returns the new index of each row, or kNoRow.
  std::vector<int32_t> drop(const Finished& finished);

 private:
  std::vector<Call> rows_;
};

}  // namespace torchreel
