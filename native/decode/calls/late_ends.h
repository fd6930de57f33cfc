// Ends of ranges whose begin was not found on the thread of the end. No torch, no Python.
//
// A range may begin on one thread and end on another, and that begin may not have been read yet. So the EventReader
// leaves the end here, and it waits until a promise in the file says that every event before it has been read. The
// Decoder owns them and settles them at each promise.
#pragma once

#include <cstdint>
#include <vector>

#include "decode/calls/open_calls.h"

namespace torchreel {

class LateEnds {
 public:
  LateEnds(OpenCalls& calls, const CallRows& rows) : calls_(calls), rows_(rows) {}

  void add(uint64_t key, uint64_t tick, uint32_t thread) { ends_.push_back({key, tick, thread}); }
  // Ends the oldest open call with the key, on any thread. What has none began before the recording.
  void settle(uint64_t before);

 private:
  struct LateEnd {
    uint64_t key;
    uint64_t tick;
    uint32_t thread;
  };

  OpenCalls& calls_;
  const CallRows& rows_;
  std::vector<LateEnd> ends_;
};

}  // namespace torchreel
