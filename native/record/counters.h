// Hardware counters of the calling thread by perf_event_open. Linux only; a reason is given elsewhere.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "record/stream.h"

namespace torchreel {

// Names that can be asked for.
std::vector<std::string> counter_names();
// Empty if a counter of this name can be opened now, else why not.
std::string counter_problem(const std::string& name);

// One thread's counters, read together.
struct CounterGroup {
  explicit CounterGroup(const std::vector<std::string>& names);
  ~CounterGroup();
  std::vector<int> files;
};

// Writes a kCounters with the values now.
uint64_t* put_counters(Stream* stream, uint64_t* at);

}  // namespace torchreel
