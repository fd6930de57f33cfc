// A request trace, the allocs and frees of a program, run through a simulator on a device of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "simulator/simulator.h"

namespace torchreel::simulator {

// Columns with one row per event. A handle is what the program calls a block by; not used before it is allocated.
struct RequestTrace {
  const int8_t* actions;
  const int64_t* handles;
  const int64_t* sizes;
  const int64_t* streams;
  const int32_t* pools;
  size_t count;
};

struct OutOfMemory {
  int64_t event;
  uint64_t size;      // that was asked for
  uint64_t reserved;  // then
};

class RequestTraceRun : public GeneratedGpu {
 public:
  explicit RequestTraceRun(const Rules& rules) : GeneratedGpu(rules_), rules_(rules), simulator_(rules_, *this) {}

  void run(const RequestTrace& events);

  Simulator& simulator() { return simulator_; }
  const std::optional<OutOfMemory>& first_oom() const { return first_oom_; }
  void synchronize(Simulator& simulator) override;

 private:
  Block* take(uint64_t handle, bool keep);

  const Rules rules_;
  Simulator simulator_;
  std::unordered_map<uint64_t, Block*> live_;
  std::optional<OutOfMemory> first_oom_;
};

}  // namespace torchreel::simulator
