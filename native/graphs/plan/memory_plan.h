// Where in the pool the storages of a graph lie: two may share a place if their lives do not touch.
#pragma once

#include <cstdint>
#include <vector>

#include "graphs/plan/pool.h"

namespace torchreel::graphs {

// When memory is used. On two lanes of kernels, each has steps of its own; kernels that run while no other does are
// steps of both.
struct Life {
  int64_t first[2], last[2];  // steps, both included

  static Life of(int64_t first, int64_t last) { return {{first, first}, {last, last}}; }
  bool is_before(const Life& other) const { return last[0] < other.first[0] && last[1] < other.first[1]; }
  int64_t end() const { return last[0] > last[1] ? last[0] : last[1]; }
};

struct Need {
  size_t bytes;
  Life life;
  size_t offset = 0;  // found
};

// What lies in the pool already. It is in the way until its last use.
struct Obstacle {
  Range range;
  int64_t last;
};

// What lies at a place from one step to another.
struct Stay {
  Range range;
  int64_t first, last;
};
using Stays = std::vector<Stay>;

// The largest part of `ranges`, which are merged, in which nothing lies at a step. Stays are sorted by where they
// begin.
Range largest_idle(const std::vector<Range>& ranges, const Stays& stays, int64_t step);

// Gives the end of the farthest. Those that live on behind the graph come first, then the largest.
size_t plan_memory(std::vector<Need>& needs, const std::vector<Obstacle>& obstacles, int64_t steps);

}  // namespace torchreel::graphs
