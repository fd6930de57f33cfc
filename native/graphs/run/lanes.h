// Kernels on two cores at a time: each lane has its own, in their order, and waits where the other lane has to be
// farther. The first lane is that of the calling thread; of the second, each is done by whoever comes to it first.
#pragma once

#include <atomic>
#include <exception>
#include <vector>

#include "graphs/kernels/kernel.h"

namespace torchreel::graphs {

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

class Lanes {
 public:
  struct Step {
    Kernel* kernel;  // which outlives the lanes
    uint32_t wait;   // how many of the other lane have to be done before
    uint32_t index;  // among the kernels of the graph
  };
  // `order` is one in which one thread may run them all.
  Lanes(std::vector<Step> first, std::vector<Step> second, std::vector<Step> order);

  // Throws what a kernel throws; `index` is then that of the kernel.
  void run(size_t& index, bool two_cores);
  size_t size() const { return order_.size(); }

  // For whoever has claimed a task of the second lane, of which so many were not begun. When it is done, the lanes may
  // be gone.
  void run_second(uint32_t left);

 private:
  void run_alone(size_t& index);
  void run_first();
  void help(uint32_t& tries);
  bool run_step(int lane, const Step& step);

  // Of what both threads look at, each on a line of its own.
  struct alignas(64) Progress {
    std::atomic<uint32_t> done{0};
    std::exception_ptr error;
    size_t index = 0;  // of the kernel that failed
  };

  std::vector<Step> lanes_[2], order_;
  Progress progress_[2];
  std::atomic<bool> stopped_{false};
};

}  // namespace torchreel::graphs
