#include "record/termination.h"

#include <signal.h>

#include <atomic>
#include <optional>

#include "record/recording.h"

namespace torchreel {

namespace {

constexpr int kSignals[] = {SIGTERM, SIGHUP};

// Signals come to any thread that does not block them, so what holds them is known to all threads.
std::atomic<int> holders{0};
std::atomic<int> waiting{0};
std::atomic<bool> flushing{false};

void end_process(int number) {
  flush_before_death();
  signal(number, SIG_DFL);
  raise(number);
}

void end_or_wait(int number) {
  if (holders.load() > 0) {
    waiting.store(number);
  } else {
    end_process(number);
  }
}

bool is_handled_by(int number, void (*handler)(int)) {
  struct sigaction current{};
  return sigaction(number, nullptr, &current) == 0 && (current.sa_flags & SA_SIGINFO) == 0 &&
         current.sa_handler == handler;
}

// Ours, as long as a recording runs or begins; the default after that. Whoever else handles a signal keeps it.
void handle_signals() {
  bool ours = flushing.load() || holders.load() > 0;
  struct sigaction action{};
  sigemptyset(&action.sa_mask);
  action.sa_handler = ours ? &end_or_wait : SIG_DFL;
  for (int number : kSignals) {
    if (is_handled_by(number, ours ? SIG_DFL : &end_or_wait)) sigaction(number, &action, nullptr);
  }
}

}  // namespace

TerminationBlocked::TerminationBlocked() {
  sigset_t set;
  sigemptyset(&set);
  for (int number : kSignals) sigaddset(&set, number);
  pthread_sigmask(SIG_BLOCK, &set, &before_);
}

TerminationBlocked::~TerminationBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

void hold_termination(bool hold) {
  // A handler of the program's own is kept from this thread, in which it might raise.
  static thread_local std::optional<TerminationBlocked> blocked;
  if (hold) {
    holders.fetch_add(1);
    handle_signals();
    blocked.emplace();
    return;
  }
  blocked.reset();
  if (holders.fetch_sub(1) != 1) return;
  handle_signals();
  if (int number = waiting.exchange(0)) raise(number);
}

void flush_on_termination(bool on) {
  flushing.store(on);
  handle_signals();
}

}  // namespace torchreel
