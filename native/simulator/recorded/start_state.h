// The state of an allocator when a history begins that does not begin with an empty one.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "simulator/recorded/rebuilt_state.h"

namespace torchreel::simulator {

struct StartSegment {
  uint64_t base;
  uint64_t size;  // of the memory, or of the address space if it is expandable
  uint64_t page;  // 0: not expandable
  uint64_t stream;
  int pool;
  bool small;
};

struct StartBlock {
  uint64_t address;
  uint64_t size;
  uint64_t requested;
  uint64_t room;  // bytes behind it that may be its own, too: nothing tells whether they were split off
  bool pending;
};

struct MappedRun {
  uint64_t address;
  uint64_t size;
};

// Each by ascending address. What does not fit is left out: the lists come from files.
struct StartState {
  std::vector<StartSegment> segments;
  std::vector<StartBlock> blocks;
  std::vector<MappedRun> mapped;
  // Places of the old counters in the order that was learned; empty: by address.
  std::vector<int64_t> ranks;

  // The blocks that live, by address. Returns how many counters are older than the history.
  int64_t load(RebuiltState& simulator, std::unordered_map<uint64_t, Block*>& live) const;
};

}  // namespace torchreel::simulator
