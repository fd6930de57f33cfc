// Kernels on two cores. Each lane runs its kernels in their order, and waits where it depends on the other lane. The
// calling thread runs lane 1. Tasks of lane 2 are run by the helper thread or by the caller, whoever claims them first.
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
    uint32_t wait;   // how many tasks of the other lane must be done before
    uint32_t index;  // among the kernels of the graph
  };
  // `order` is an order of all tasks for one thread.
  Lanes(std::vector<Step> first, std::vector<Step> second, std::vector<Step> order);

  // Throws what a kernel throws; `index` is then that of the kernel.
  void run(size_t& index, bool two_cores);
  size_t size() const { return order_.size(); }

  // Runs the task of lane 2 that HelperThread::claim(left) claimed. Afterwards the lanes may be gone.
  void run_second(uint32_t left);

 private:
  void run_alone(size_t& index);
  void run_first();
  void help(uint32_t& tries);
  bool run_step(int lane, const Step& step);

  // Both threads use these: each is on a cache line of its own.
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
