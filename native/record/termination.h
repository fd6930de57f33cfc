// Signals that end a process which does not handle them: what was recorded is brought to disk first.
#pragma once

#include <signal.h>

namespace torchreel {

// Only where nobody else handles the signal; whoever does so later takes it over.
void flush_on_termination(bool on);

// Such a signal waits, whichever thread it comes to, until it is let go again.
void hold_termination(bool hold);

// While it lives such a signal waits, if it comes to this thread.
class TerminationBlocked {
 public:
  TerminationBlocked();
  ~TerminationBlocked();
  TerminationBlocked(const TerminationBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace torchreel
