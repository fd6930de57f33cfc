// The second thread of graphs that run on two cores. A process has one, and one graph uses it at a time. It claims
// tasks that nobody has claimed; the calling thread runs the others. So a run never waits for a core that somebody else
// uses.
#pragma once

#include <atomic>
#include <cfenv>
#include <cstdint>
#include <functional>

namespace torchreel::graphs {

class Lanes;

class HelperThread {
 public:
  static HelperThread& of_this_process();

  // Whether the caller got it. False in a child of fork(), which has no threads of its parent.
  bool take();
  void leave() { taken_.store(false, std::memory_order_release); }

  // Offers so many tasks of these lanes.
  void begin(Lanes& lanes, uint32_t tasks);
  // Claims the next task of lane 2 for the caller. `left` tasks are unclaimed. False if the helper was faster.
  bool claim(uint32_t left);
  // Ends the offer. Returns how many tasks are unclaimed.
  uint32_t stop();
  bool has_come() const { return static_cast<uint32_t>(word_.load(std::memory_order_relaxed)) < tasks_; }

 private:
  HelperThread();
  void live();
  uint64_t next_word();

  std::atomic<bool> taken_{false};
  bool is_there_ = false;
  uint32_t run_ = 0, tasks_ = 0;
  std::fenv_t numbers_;  // each thread has its own rule for denormal numbers
  std::atomic<Lanes*> lanes_{nullptr};
  // The number of the run, and in the lower bits how many of its tasks are unclaimed. Whoever decrements the latter may
  // use the lanes until the task is done.
  alignas(64) std::atomic<uint64_t> word_{0};
};

// Calls a function in another thread, in the state in which the helper thread runs kernels.
void run_in_another_thread(const std::function<void()>& body);

}  // namespace torchreel::graphs
