// Ticks of a spool -> nanoseconds since the epoch. No torch, no Python.
//
// The head of the events tells one moment in ticks and on the wall, and two on the steady clock: the first is where
// time begins, the two others are how long a tick is.
#pragma once

#include <cstdint>

#include "base/spool_format.h"

namespace torchreel {

class SpoolClock {
 public:
  explicit SpoolClock(const layout::EventsHeader& header)
      : start_tick_(header.start_tick), start_ns_(static_cast<int64_t>(header.start_realtime_ns)) {
    double ticks = static_cast<double>(header.last_tick) - static_cast<double>(header.first_tick);
    double ns = static_cast<double>(header.last_steady_ns) - static_cast<double>(header.first_steady_ns);
    if (ticks > 0 && ns > 0) ns_per_tick_ = ns / ticks;
  }
  int64_t time_ns(uint64_t tick) const {
    auto passed = static_cast<int64_t>(tick - start_tick_);
    return start_ns_ + static_cast<int64_t>(static_cast<double>(passed) * ns_per_tick_);
  }
  int64_t duration_ns(uint64_t ticks) const { return static_cast<int64_t>(static_cast<double>(ticks) * ns_per_tick_); }

 private:
  uint64_t start_tick_;
  int64_t start_ns_;
  double ns_per_tick_ = 1;
};

}  // namespace torchreel
