// The words of a block -> events, each handed to what it concerns. No torch, no Python.
//
//     block ── words ──► EventReader ──┬─ begin, end ──────────► OpenCalls, LateEnds
//                                      ├─ alloc, free ─────────► MemoryPairing
//                                      └─ mark, flow ──────────► Moments
//
// A word may only make sense with those before it: times are differences, and a stack, a name or counters stand before
// the begin that they belong to. What a thread has said so far is its state here, which lasts from block to block. The
// layout of the words is drawn in base/spool_format.h. The Decoder owns the reader.
#pragma once

#include <cstdint>
#include <vector>

#include "base/spool_format.h"
#include "decode/calls/counters.h"
#include "decode/calls/late_ends.h"
#include "decode/calls/open_calls.h"
#include "decode/memory/pairing.h"
#include "decode/moments.h"
#include "decode/spool/blocks.h"
#include "decode/spool/definitions.h"
#include "decode/spool/inline_definitions.h"
#include "decode/spool/windows.h"

namespace torchreel {

class EventReader {
 public:
  // All must outlive it.
  EventReader(Definitions& definitions, const Windows& windows, OpenCalls& calls, LateEnds& late_ends,
              MemoryPairing& memory, Moments& moments)
      : definitions_(definitions),
        inline_definitions_(definitions),
        windows_(windows),
        calls_(calls),
        late_ends_(late_ends),
        memory_(memory),
        moments_(moments) {}

  // A block of a thread. Stops where the next event is not whole. Throws SpoolError.
  void read(const SpoolBlock& block);
  // The recording ended at a tick, or with a thread's last event: whatever is open ends then.
  void finish(uint64_t end_tick);
  // The latest event of all.
  uint64_t last_tick() const { return last_tick_; }
  bool has_inline_definitions() const { return inline_definitions_.any(); }

 private:
  struct Thread {
    bool seen = false;
    uint64_t tick = 0;
    int64_t seq = -1;
    uint32_t stack = 0;
    // Of the next begin, or of the next event that has any.
    uint32_t inline_name = layout::kNone;
    uint32_t inline_inputs = layout::kNone;
    int64_t handle = -1;
    uint32_t script = layout::kNone;
    int64_t record_id = -1;
    Readings counters;
  };
  using Word = const uint64_t*;

  Thread& thread_of(const layout::BlockHeader& block);
  void read_words(uint32_t id, Word at, Word end);
  // Each returns where the next event begins, or null if this one is cut short.
  Word read_begin(Thread& thread, uint32_t id, uint64_t head, Word at, Word end);
  Word read_inline(Thread& thread, uint64_t head, Word at, Word end);
  void read_handle(Thread& thread, uint64_t head, uint64_t value);
  void read_memory(const Thread& thread, uint32_t id, uint64_t head, Word at);
  void read_moment(Thread& thread, uint32_t id, uint64_t head, Word at);
  void read_end(Thread& thread, uint32_t id);
  void read_end_keyed(Thread& thread, uint32_t id, uint64_t key);

  Definitions& definitions_;
  InlineDefinitions inline_definitions_;
  const Windows& windows_;
  OpenCalls& calls_;
  LateEnds& late_ends_;
  MemoryPairing& memory_;
  Moments& moments_;
  std::vector<Thread> threads_;
  uint64_t last_tick_ = 0;
};

}  // namespace torchreel
