// Calls -> the table `ops`. No torch, no Python.
//
// The Decoder owns one, and asks for a batch of the calls that have finished, before it drops them.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>

#include "decode/calls/call_rows.h"
#include "decode/spool/clock.h"
#include "decode/spool/definitions.h"
#include "decode/tables/arrow.h"

namespace torchreel {

class OpsTable {
 public:
  OpsTable(const Definitions& definitions, const SpoolClock& clock, int64_t node);

  std::unique_ptr<Batch> batch(const CallRows& rows, const Finished& finished) const;

 private:
  // -1 if no thread of the recording is meant.
  int64_t forward_thread(const Call& call) const;

  const Definitions& definitions_;
  const SpoolClock& clock_;
  const int64_t node_;
  std::unordered_map<uint64_t, uint32_t> thread_of_torch_id_;
};

}  // namespace torchreel
