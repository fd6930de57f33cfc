// Whether a call may run on one thread beside others, and how long it takes then.
#pragma once

#include "graphs/kernels/kernel.h"
#include "graphs/plan/schedule.h"

namespace torchreel::graphs {

struct OneThreadTrial {
  Work::Kind kind = Work::kFixed;
  double nanoseconds = 0;  // on one thread, where it may run there
};

// `kernel` is that of the call, and took `nanoseconds` with all threads. A call may run beside others only if it gives
// the same bits on one thread: it uses one thread anyway, or a trial on random numbers showed it.
OneThreadTrial one_thread_trial(const KernelCall& call, const Kernel& kernel, double nanoseconds);

// Whether the call cannot fail and touches only what its schema declares: then its order among calls on other memory
// does not matter.
bool is_plain_work(const tape::OpInfo& op, const Kernel& kernel, const KernelCall& call);

}  // namespace torchreel::graphs
