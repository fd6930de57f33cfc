// List scheduling of kernels on two cores, by their costs and dependences.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace torchreel::graphs {

struct Work {
  enum Kind : uint8_t {
    kFixed,   // keeps its order with all other works
    kAlone,   // runs while nothing else runs: it may use all threads itself
    kBeside,  // may run beside others, on one thread
  };
  Kind kind = kFixed;
  double all = 0, one = 0;      // nanoseconds with all threads and with one
  std::vector<uint32_t> after;  // works that it depends on
};

// A work of a lane, and how many tasks of the other lane must be done before it.
struct Task {
  uint32_t work;
  uint32_t wait;
};

// Works that run one after the other or, if the second lane has any, in two lanes.
struct Stretch {
  bool one_thread = false;      // each work runs on one thread
  std::vector<uint32_t> order;  // all works, in an order for one thread
  std::vector<Task> lanes[2];
  bool is_parallel() const { return !lanes[1].empty(); }
};

struct Schedule {
  std::vector<Stretch> stretches;
  double one_by_one = 0;  // nanoseconds, one work after the other
  double planned = 0;     // nanoseconds
};

// What threads cost, in nanoseconds.
struct Toll {
  double begin = 2500;      // until the second thread begins
  double one_thread = 100;  // to restrict torch and BLAS to one thread, and to undo that
  double hand_over = 300;   // until one lane sees that the other has done a task
};

Schedule schedule(const std::vector<Work>& works, const Toll& toll);

}  // namespace torchreel::graphs
