// Which kernels run on which of two cores: found from what each costs and what it has to wait for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace torchreel::graphs {

struct Work {
  enum Kind : uint8_t {
    kFixed,   // all that is before it comes before it, and all that is behind it after
    kAlone,   // runs while nothing else does: it may use all threads itself
    kBeside,  // may run beside others, on one thread
  };
  Kind kind = kFixed;
  double all = 0, one = 0;      // nanoseconds with all threads and with one
  std::vector<uint32_t> after;  // works before it that have to be done
};

// One of a lane, and how many of the other lane have to be done before it.
struct Task {
  uint32_t work;
  uint32_t wait;
};

// Works that run one after the other, or, if the second lane has any, in two lanes at a time.
struct Stretch {
  bool one_thread = false;      // each on one
  std::vector<uint32_t> order;  // all of them, as one thread may run them
  std::vector<Task> lanes[2];
  bool is_parallel() const { return !lanes[1].empty(); }
};

struct Schedule {
  std::vector<Stretch> stretches;
  double one_by_one = 0;  // nanoseconds, one work after the other
  double planned = 0;     // nanoseconds
};

// Nanoseconds that the threads themselves cost.
struct Toll {
  double begin = 2500;      // until the second thread has begun
  double one_thread = 100;  // to leave torch and BLAS one thread, and give them back the others
  double hand_over = 300;   // until one lane has seen what the other has done
};

Schedule schedule(const std::vector<Work>& works, const Toll& toll);

}  // namespace torchreel::graphs
