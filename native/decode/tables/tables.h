// What was decoded -> the columns of reel/tables.py, by name; `ops` has a file of its own. No torch, no Python.
#pragma once

#include <memory>
#include <vector>

#include "decode/calls/counters.h"
#include "decode/calls/steps.h"
#include "decode/memory/pairing.h"
#include "decode/moments.h"
#include "decode/spool/clock.h"
#include "decode/spool/definitions.h"
#include "decode/tables/batches.h"

namespace torchreel {

std::unique_ptr<Batch> allocs_batch(const MemoryPairing& memory, const SpoolClock& clock);
std::unique_ptr<Batch> marks_batch(const std::vector<Moment>& marks, const Definitions& all, const SpoolClock& clock);
std::unique_ptr<Batch> flows_batch(const std::vector<Moment>& flows, const Definitions& all, const SpoolClock& clock);
std::unique_ptr<Batch> counters_batch(const std::vector<CounterDifference>& differences, const Definitions& all);
std::unique_ptr<Batch> inputs_batch(const Definitions& all);
std::unique_ptr<Batch> stacks_batch(const Definitions& all);
std::unique_ptr<Batch> frames_batch(const Definitions& all);
std::unique_ptr<Batch> modules_batch(const Definitions& all);
std::unique_ptr<Batch> threads_batch(const Definitions& all);
std::unique_ptr<Batch> steps_batch(const Steps& steps, const SpoolClock& clock, int64_t end_ns);

}  // namespace torchreel
