// What native/record/recording.cpp asks torch for, for a program without torch.
#pragma once

#include <cstdint>

namespace at {

struct RecordFunction {
  static uint64_t currentThreadId();
  static int64_t getDefaultNodeId() { return -1; }
};

}  // namespace at
