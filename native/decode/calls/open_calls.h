// The calls of each thread that have begun and not ended: who stands within whom. No torch, no Python.
//
//     thread 0   aten::linear ─┐         open: [linear, addmm]      a begin is pushed, an end without a key pops
//                  aten::addmm │         [range 5, linear]          an end with a key may take one out of the middle
//
// The Decoder owns it. The EventReader begins and ends calls here, in the order of each thread's events; LateEnds ends
// those whose end was read on another thread. The calls themselves are rows of CallRows; only their indexes are here.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "decode/calls/call_rows.h"
#include "decode/calls/counters.h"
#include "decode/calls/forward_calls.h"
#include "decode/calls/script_modules.h"
#include "decode/calls/steps.h"
#include "decode/spool/definitions.h"
#include "decode/spool/windows.h"

namespace torchreel {

class OpenCalls {
 public:
  // All must outlive it. Modules of TorchScript are added to the definitions.
  OpenCalls(Definitions& definitions, const Windows& windows, const Steps& steps, CallRows& rows,
            ForwardCalls& forward_calls, CallCounters& counters)
      : definitions_(definitions),
        windows_(windows),
        steps_(steps),
        rows_(rows),
        forward_calls_(forward_calls),
        counters_(counters) {}

  // Threads below may be used.
  void grow_to(size_t threads) {
    if (threads > threads_.size()) threads_.resize(threads);
  }
  // Fills in what follows from where the call stands. `script` is the name of modules of TorchScript, or kNone.
  void begin(Call& call, uint32_t script, Readings& readings);
  // Ends the innermost call that has no key; ranges within it that are still open stay open. Does nothing if the call
  // began before the recording.
  void end_innermost(uint32_t thread, uint64_t tick, const Readings& readings);
  // False if the thread has no such call.
  bool end_keyed(uint32_t thread, uint64_t key, uint64_t tick, const Readings& readings);
  // Ends all calls of a thread: nobody knows when they ended.
  void cut(uint32_t thread, uint64_t tick, const Readings& readings);
  // A range ended on another thread: it is async, and calls of its own thread after that were not within it.
  void end_elsewhere(int32_t row, uint32_t end_thread, uint64_t tick);

  // The row of the innermost open call that is shown, or kNoRow.
  int32_t innermost(uint32_t thread) const;
  // Its id, or -1.
  int64_t innermost_id(uint32_t thread) const {
    int32_t row = innermost(thread);
    return row == kNoRow ? -1 : rows_[row].id;
  }
  // The rows of those that have a key, by key.
  std::unordered_multimap<uint64_t, int32_t> by_key() const;
  // After rows were dropped.
  void renumber(const std::vector<int32_t>& moved);

 private:
  struct Thread {
    std::vector<int32_t> open;
    size_t hidden = 0;  // how many of those are
    size_t steps = 0;   // that have begun
  };

  void stand_within_parent(const Thread& thread, Call& call);
  // Calls within it may still be open.
  void end_at(Thread& thread, size_t position, uint64_t tick, const Readings& readings);

  Definitions& definitions_;
  const Windows& windows_;
  const Steps& steps_;
  CallRows& rows_;
  ForwardCalls& forward_calls_;
  CallCounters& counters_;
  ScriptModules script_modules_;
  std::vector<Thread> threads_;
  int64_t next_id_ = 0;
};

}  // namespace torchreel
