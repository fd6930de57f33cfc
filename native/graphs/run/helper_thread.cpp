#include "graphs/run/helper_thread.h"

#include <ATen/Parallel.h>
#include <pthread.h>

#include <optional>
#include <system_error>
#include <thread>

#include "graphs/run/lanes.h"
#include "torch/below_autograd.h"
#include "torch/one_thread.h"

namespace torchreel::graphs {

namespace {

constexpr int kIdleSpins = 2000;  // some fifty microseconds: then it sleeps

std::atomic<bool> forked{false};

// Torch sets the number of threads of a thread when it is first asked, so ask before it is set to one.
struct State {
  int threads = at::get_num_threads();
  BelowAutograd below_autograd;
  OneThread one;
};

}  // namespace

HelperThread& HelperThread::of_this_process() {
  static auto* helper = new HelperThread();  // its thread may be there until the very end
  return *helper;
}

HelperThread::HelperThread() {
  pthread_atfork(nullptr, nullptr, [] { forked = true; });
  try {
    std::thread([this] { live(); }).detach();
    is_there_ = true;
  } catch (const std::system_error&) {
    // The process cannot have another thread: runs do without.
  }
}

bool HelperThread::take() { return is_there_ && !forked && !taken_.exchange(true, std::memory_order_acquire); }

void HelperThread::begin(Lanes& lanes, uint32_t tasks) {
  lanes_.store(&lanes, std::memory_order_relaxed);
  tasks_ = tasks;
  std::fegetenv(&numbers_);
  word_.store(static_cast<uint64_t>(++run_) << 32 | tasks, std::memory_order_release);
  word_.notify_one();
}

bool HelperThread::claim(uint32_t left) {
  uint64_t word = static_cast<uint64_t>(run_) << 32 | left;
  return left > 0 && word_.compare_exchange_strong(word, word - 1, std::memory_order_acq_rel);
}

uint32_t HelperThread::stop() {
  return static_cast<uint32_t>(word_.exchange(static_cast<uint64_t>(run_) << 32, std::memory_order_acq_rel));
}

uint64_t HelperThread::next_word() {
  for (int spins = 0;; spins++) {
    uint64_t word = word_.load(std::memory_order_acquire);
    if (static_cast<uint32_t>(word) != 0) return word;
    if (spins < kIdleSpins) {
      pause();
    } else {
      word_.wait(word);
      spins = 0;
    }
  }
}

void HelperThread::live() {
  State state;
  while (true) {
    uint64_t word = next_word();
    if (!word_.compare_exchange_strong(word, word - 1, std::memory_order_acq_rel)) continue;
    std::fesetenv(&numbers_);
    lanes_.load(std::memory_order_relaxed)->run_second(static_cast<uint32_t>(word));
  }
}

void run_in_another_thread(const std::function<void()>& body) {
  std::fenv_t numbers;
  std::fegetenv(&numbers);
  std::exception_ptr error;
  std::thread([&] {
    State state;
    std::fesetenv(&numbers);
    try {
      body();
    } catch (...) {
      error = std::current_exception();
    }
  }).join();
  if (error != nullptr) std::rethrow_exception(error);
}

}  // namespace torchreel::graphs
