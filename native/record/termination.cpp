#include "record/termination.h"

#include <signal.h>

#include <optional>

#include "record/recording.h"

namespace torchreel {

namespace {

constexpr int kSignals[] = {SIGTERM, SIGHUP};

void end_process(int number) {
  flush_before_death();
  signal(number, SIG_DFL);
  raise(number);
}

bool is_handled_by(int number, void (*handler)(int)) {
  struct sigaction current{};
  return sigaction(number, nullptr, &current) == 0 && (current.sa_flags & SA_SIGINFO) == 0 &&
         current.sa_handler == handler;
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
  static thread_local std::optional<TerminationBlocked> blocked;
  hold ? void(blocked.emplace()) : blocked.reset();
}

void flush_on_termination(bool on) {
  struct sigaction action{};
  sigemptyset(&action.sa_mask);
  action.sa_handler = on ? &end_process : SIG_DFL;
  for (int number : kSignals) {
    if (is_handled_by(number, on ? SIG_DFL : &end_process)) sigaction(number, &action, nullptr);
  }
}

}  // namespace torchreel
