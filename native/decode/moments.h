// Events without a duration: marks, and the two ends of a flow. No torch, no Python.
//
// The Decoder owns them; the EventReader adds to them, and the tables `marks` and `flows` are made of them.
#pragma once

#include <cstdint>
#include <vector>

namespace torchreel {

struct Moment {
  uint64_t tick;
  uint32_t thread;
  uint32_t name;
  int64_t op;
  uint64_t flow = 0;
  bool in = false;
};

struct Moments {
  std::vector<Moment> marks;
  std::vector<Moment> flows;

  void clear() {
    marks.clear();
    flows.clear();
  }
};

}  // namespace torchreel
