// Hardware counters of calls: what they stood at when a call began, and by how much they had grown when it ended. No
// torch, no Python.
//
// The Decoder owns them, OpenCalls writes to them, and the table `counters` is made of the differences.
#pragma once

#include <cstdint>
#include <vector>

#include "decode/calls/call_rows.h"

namespace torchreel {

// The value of each counter, in the order of the definitions.
using Readings = std::vector<uint64_t>;

struct CounterDifference {
  int64_t op;
  uint32_t counter;
  int64_t value;
};

class CallCounters {
 public:
  // Of a call that begins. Empties the readings.
  void begin(Call& call, Readings& readings);
  // Of a call that ends.
  void end(const Call& call, const Readings& readings);

  const std::vector<CounterDifference>& differences() const { return differences_; }
  void clear_differences() { differences_.clear(); }
  // After calls were dropped: forgets what they began with.
  void keep_only(CallRows& rows);

 private:
  std::vector<Readings> at_begin_;
  std::vector<CounterDifference> differences_;
};

}  // namespace torchreel
