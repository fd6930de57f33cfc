#include "graphs/run/lanes.h"

#include <thread>

#include "graphs/run/helper_thread.h"
#include "torch/one_thread.h"

namespace torchreel::graphs {

namespace {

constexpr uint32_t kSpins = 4000;  // some hundred microseconds: by then somebody else has the core
constexpr uint32_t kGrace = 40;    // one microsecond, for the helper thread to take its next task

void spin(uint32_t tries) {
  if (tries < kSpins) {
    pause();
  } else {
    std::this_thread::yield();
  }
}

}  // namespace

Lanes::Lanes(std::vector<Step> first, std::vector<Step> second, std::vector<Step> order)
    : lanes_{std::move(first), std::move(second)}, order_(std::move(order)) {
  HelperThread::of_this_process();
}

void Lanes::run(size_t& index, bool two_cores) {
  OneThread guard;
  auto& helper = HelperThread::of_this_process();
  if (!two_cores || !helper.take()) return run_alone(index);
  for (auto& one : progress_) {
    one.done.store(0, std::memory_order_relaxed);
    one.error = nullptr;
  }
  stopped_.store(false, std::memory_order_relaxed);
  auto tasks = static_cast<uint32_t>(lanes_[1].size());
  helper.begin(*this, tasks);
  run_first();
  const auto& done = progress_[1].done;
  for (uint32_t tries = 0; done.load(std::memory_order_acquire) < tasks && !stopped_;) help(tries);
  if (stopped_) {
    uint32_t begun = tasks - helper.stop();
    for (uint32_t tries = 0; done.load(std::memory_order_acquire) < begun; tries++) spin(tries);
  }
  helper.leave();
  for (const auto& one : progress_) {
    if (one.error == nullptr) continue;
    index = one.index;
    std::rethrow_exception(one.error);
  }
}

void Lanes::run_alone(size_t& index) {
  for (const auto& step : order_) {
    index = step.index;
    step.kernel->run();
  }
}

void Lanes::run_first() {
  uint32_t count = 0;
  for (const auto& step : lanes_[0]) {
    for (uint32_t tries = 0; progress_[1].done.load(std::memory_order_acquire) < step.wait;) {
      if (stopped_) return;
      help(tries);
    }
    if (!run_step(0, step)) return;
    progress_[0].done.store(++count, std::memory_order_release);
  }
}

// Runs the next task of lane 2, if it is unclaimed and its dependences are done; else waits for a moment.
void Lanes::help(uint32_t& tries) {
  auto& helper = HelperThread::of_this_process();
  uint32_t next = progress_[1].done.load(std::memory_order_acquire), here = progress_[0].done;
  bool ready = next < lanes_[1].size() && lanes_[1][next].wait <= here;
  auto left = static_cast<uint32_t>(lanes_[1].size()) - next;
  if (ready && (tries >= kGrace || !helper.has_come()) && helper.claim(left)) {
    run_second(left);
    tries = 0;
  } else {
    spin(tries++);
  }
}

void Lanes::run_second(uint32_t left) {
  uint32_t index = static_cast<uint32_t>(lanes_[1].size()) - left;
  const auto& step = lanes_[1][index];
  auto is_ready = [&] {
    return progress_[1].done.load(std::memory_order_acquire) == index &&
           progress_[0].done.load(std::memory_order_acquire) >= step.wait;
  };
  for (uint32_t tries = 0; !is_ready() && !stopped_; tries++) spin(tries);
  if (!stopped_) run_step(1, step);
  progress_[1].done.store(index + 1, std::memory_order_release);
}

bool Lanes::run_step(int lane, const Step& step) {
  try {
    step.kernel->run();
    return true;
  } catch (...) {
    progress_[lane].error = std::current_exception();
    progress_[lane].index = step.index;
    stopped_.store(true, std::memory_order_release);
    return false;
  }
}

}  // namespace torchreel::graphs
