// Kernels on two cores at a time: each lane runs its own one after the other, and waits where the other lane has to be
// farther. The second core is one of torch's own threads, as they are behind its ops.
#pragma once

#include <ATen/TensorIterator.h>

#include <atomic>
#include <exception>
#include <functional>
#include <vector>

#include "kernel.h"
#include "schedule.h"

namespace torchreel::graphs {

// Two threads of torch, of which the caller is one.
class Pair {
 public:
  Pair();
  // Calls it with 0 here and with 1 in the other thread, at the same time. In both, what torch or BLAS would part among
  // threads runs in one. Gives false, and calls nothing, where there is no second thread to be had.
  bool run(const std::function<void(int lane)>& body);

 private:
  at::Tensor numbers_;  // one for each lane
  at::TensorIterator iterator_;
};

class Lanes {
 public:
  // The kernels of each lane outlive it. `order` is one in which one thread may run them all.
  struct Step {
    Kernel* kernel;
    uint32_t wait;   // how many of the other lane have to be done before
    uint32_t place;  // among the kernels of the graph
  };
  Lanes(std::vector<Step> first, std::vector<Step> second, std::vector<Step> order);

  // Throws what a kernel throws; `place` is then that of the kernel.
  void run(size_t& place);
  size_t size() const { return order_.size(); }

 private:
  void run_lane(int lane);
  bool wait_for(int lane, uint32_t count) const;

  // Of what both lanes look at, each on a line of its own.
  struct alignas(64) Progress {
    std::atomic<uint32_t> done{0};
    std::exception_ptr error;
    size_t place = 0;  // of the kernel that failed
  };

  Pair pair_;
  std::vector<Step> lanes_[2], order_;
  Progress progress_[2];
  std::atomic<bool> stopped_{false};
};

}  // namespace torchreel::graphs
