// The second thread of graphs that run on two cores. There is one in a process: whoever has it has it alone, and a run
// does not depend on it. It takes what it finds undone; what it does not come to, the thread that asked does itself.
// So a core that somebody else has costs nothing but its help.
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

  // Whether the caller has it now. Not in a child of fork(), which has no threads of its parent.
  bool take();
  void leave() { taken_.store(false, std::memory_order_release); }

  // It may take tasks of these lanes, of which so many are to be done.
  void begin(Lanes& lanes, uint32_t tasks);
  // Of the tasks of the lanes, `left` of which are not begun, the first is now the caller's.
  bool claim(uint32_t left);
  // It begins no other one. Gives how many are not begun.
  uint32_t stop();
  bool has_come() const { return static_cast<uint32_t>(word_.load(std::memory_order_relaxed)) < tasks_; }

 private:
  HelperThread();
  void live();
  uint64_t next_word();

  std::atomic<bool> taken_{false};
  bool is_there_ = false;
  uint32_t run_ = 0, tasks_ = 0;
  std::fenv_t numbers_;  // whether denormal numbers are flushed is a matter of each thread
  std::atomic<Lanes*> lanes_{nullptr};
  // The number of the run, and behind it how many of its tasks are not begun. Whoever makes that one less may look at
  // the lanes until the task is done.
  alignas(64) std::atomic<uint64_t> word_{0};
};

// Calls it in another thread, in the state that the helper thread runs kernels in.
void run_in_another_thread(const std::function<void()>& body);

}  // namespace torchreel::graphs
