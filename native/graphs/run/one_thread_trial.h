// What a call does on one thread: whether it may run there at all, beside others, and how long it takes.
#pragma once

#include "graphs/kernels/kernel.h"
#include "graphs/plan/schedule.h"

namespace torchreel::graphs {

struct OneThreadTrial {
  Work::Kind kind = Work::kFixed;
  double nanoseconds = 0;  // on one thread, where it may run there
};

// `kernel` is that of the call, and took `nanoseconds` with all threads. A call may run beside others only if its bits
// are the same then: it uses one thread anyway, or it was tried on random numbers.
OneThreadTrial one_thread_trial(const KernelCall& call, const Kernel& kernel, double nanoseconds);

// Whether all that it does is to read and to write what its schema says, and it does so whatever the values are: then
// it can change places with others that use other memory.
bool is_plain_work(const tape::OpInfo& op, const Kernel& kernel, const KernelCall& call);

}  // namespace torchreel::graphs
