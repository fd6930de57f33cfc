// Where in the pool the storages of a graph lie: two may share a place if their lives do not touch.
#pragma once

#include <cstdint>
#include <vector>

#include "pool.h"

namespace torchreel::graphs {

struct Need {
  size_t bytes;
  int64_t first, last;  // steps, both included
  size_t offset = 0;    // found
};

// What lies in the pool already. It is in the way until its last use.
struct Obstacle {
  Range range;
  int64_t last;
};

// Gives the end of the farthest. Those that live on behind the graph come first, then the largest.
size_t lay_out(std::vector<Need>& needs, const std::vector<Obstacle>& obstacles, int64_t steps);

}  // namespace torchreel::graphs
