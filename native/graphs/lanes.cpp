#include "lanes.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <pthread.h>

#include <cfenv>
#include <thread>

#include "below.h"
#include "one_thread.h"

namespace torchreel::graphs {

namespace {

constexpr int kSpins = 4000;  // some ten microseconds: then somebody else has the core

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// A child of fork() has none of its parent's threads, and the library behind them does not know.
std::atomic<bool>& has_forked() {
  static std::atomic<bool> forked{false};
  static const int watched = pthread_atfork(nullptr, nullptr, [] { has_forked() = true; });
  (void)watched;
  return forked;
}

}  // namespace

Pair::Pair() : numbers_(at::empty({2}, at::kByte)) {
  has_forked();
  iterator_ =
      at::TensorIteratorConfig().check_all_same_dtype(false).add_owned_output(numbers_).resize_outputs(false).build();
}

// Torch's threads are behind its iterators alone.
bool Pair::run(const std::function<void(int lane)>& body) {
  if (at::get_num_threads() < 2 || at::in_parallel_region() || has_forked()) return false;
  const char* first = static_cast<const char*>(numbers_.const_data_ptr());
  std::fenv_t here;  // whether denormal numbers are flushed is a matter of each thread
  std::fegetenv(&here);
  bool parted = true;
  iterator_.for_each(
      [&](char** data, const int64_t*, int64_t count, int64_t) {
        if (count != 1) {
          parted = false;  // one thread was given both
          return;
        }
        auto lane = static_cast<int>(data[0] - first);
        if (lane == 0) {
          body(0);
          return;
        }
        Below below;
        std::fenv_t there;
        std::fegetenv(&there);
        std::fesetenv(&here);
        body(1);
        std::fesetenv(&there);
      },
      1);
  return parted;
}

Lanes::Lanes(std::vector<Step> first, std::vector<Step> second, std::vector<Step> order)
    : lanes_{std::move(first), std::move(second)}, order_(std::move(order)) {}

void Lanes::run(size_t& place) {
  for (auto& one : progress_) {
    one.done.store(0, std::memory_order_relaxed);
    one.error = nullptr;
  }
  stopped_.store(false, std::memory_order_relaxed);
  if (pair_.run([this](int lane) { run_lane(lane); })) {
    for (const auto& one : progress_) {
      if (one.error == nullptr) continue;
      place = one.place;
      std::rethrow_exception(one.error);
    }
    return;
  }
  OneThread guard;
  for (const auto& step : order_) {
    place = step.place;
    step.kernel->run();
  }
}

void Lanes::run_lane(int lane) {
  OneThread guard;
  auto& mine = progress_[lane];
  uint32_t done = 0;
  for (const auto& step : lanes_[lane]) {
    if (!wait_for(1 - lane, step.wait)) return;
    try {
      step.kernel->run();
    } catch (...) {
      mine.error = std::current_exception();
      mine.place = step.place;
      stopped_.store(true, std::memory_order_release);
      return;
    }
    mine.done.store(++done, std::memory_order_release);
  }
}

// False if the other lane has stopped for good.
bool Lanes::wait_for(int lane, uint32_t count) const {
  const auto& done = progress_[lane].done;
  for (int spins = 0; done.load(std::memory_order_acquire) < count; spins++) {
    if (stopped_.load(std::memory_order_acquire)) return done.load(std::memory_order_acquire) >= count;
    if (spins < kSpins) {
      pause();
    } else {
      std::this_thread::yield();
    }
  }
  return true;
}

}  // namespace torchreel::graphs
