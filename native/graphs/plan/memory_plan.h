// The memory plan: an offset in the pool for each storage of a graph. Two may share memory if their lives do not
// overlap.
#pragma once

#include <cstdint>
#include <vector>

#include "graphs/plan/pool.h"

namespace torchreel::graphs {

// The steps in which memory is used. Two lanes of kernels count their steps separately; a kernel that runs alone is a
// step of both.
struct Life {
  int64_t first[2], last[2];  // steps, both included

  static Life of(int64_t first, int64_t last) { return {{first, first}, {last, last}}; }
  bool is_before(const Life& other) const { return last[0] < other.first[0] && last[1] < other.first[1]; }
  int64_t end() const { return last[0] > last[1] ? last[0] : last[1]; }
};

struct Need {
  size_t bytes;
  Life life;
  size_t offset = 0;  // set by plan_memory()
};

// Memory of the pool that is in use already, until its last step.
struct Obstacle {
  Range range;
  int64_t last;
};

// A range that is in use from one step to another.
struct Stay {
  Range range;
  int64_t first, last;
};
using Stays = std::vector<Stay>;

// The largest part of `ranges` that is not in use at a step. Ranges are merged, stays are sorted by address.
Range largest_idle(const std::vector<Range>& ranges, const Stays& stays, int64_t step);

// Sets the offsets, and returns the highest end. Places what outlives the graph first, then the largest.
size_t plan_memory(std::vector<Need>& needs, const std::vector<Obstacle>& obstacles, int64_t steps);

}  // namespace torchreel::graphs
