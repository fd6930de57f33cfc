// A spool -> tables: calls are paired, nested, given self time, and joined with allocs, steps, modules and their
// forward calls, in one pass and in bounded memory. No torch, no Python.
//
//     SpoolBlocks ──► EventReader ──┬─► OpenCalls ── CallRows ──► OpsTable ──┐
//                                   ├─► LateEnds, ForwardCalls              ├──► batches
//                                   ├─► MemoryPairing ──────────► tables ───┤
//                                   └─► Moments ────────────────► tables ───┘
//
// Threads are decoded block by block, so at any moment some have been read further than others. What concerns two
// threads (a range that ends elsewhere, a block freed elsewhere, a backward call) waits until a promise in the file
// says that every event before it has been read: then it is settled. When enough calls are there, those that ended
// before the promise leave as a batch, and the others stay for the next one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "decode/calls/call_rows.h"
#include "decode/calls/counters.h"
#include "decode/calls/forward_calls.h"
#include "decode/calls/late_ends.h"
#include "decode/calls/open_calls.h"
#include "decode/calls/steps.h"
#include "decode/event_reader.h"
#include "decode/memory/pairing.h"
#include "decode/moments.h"
#include "decode/spool/blocks.h"
#include "decode/spool/clock.h"
#include "decode/spool/definitions.h"
#include "decode/spool/files.h"
#include "decode/spool/windows.h"
#include "decode/tables/batches.h"
#include "decode/tables/ops.h"

namespace torchreel {

class Decoder {
 public:
  // Throws SpoolError. Of a directory all that is there; of files what was there at an earlier moment.
  explicit Decoder(const std::string& directory) : Decoder(SpoolFiles::in(directory)) {}
  explicit Decoder(SpoolFiles files);
  Decoder(const Decoder&) = delete;

  // Only what begins within the windows, as if the recording had been on in them alone; with steps of its own. Before
  // the first next().
  void restrict_to(std::vector<Window> windows, std::vector<Steps::Step> steps);
  // The next rows of ops, allocs, marks, flows and counters; false at the end of the file.
  bool next(Batches& batches);
  // Instead of next(), of a spool that still grows: the rows that are settled, and not those of calls that are open.
  void next_settled(Batches& batches);
  // The spool has these sizes now. False if what was decoded is no longer right: then it is to be decoded anew.
  bool grow(uint64_t definitions_size, uint64_t events_size);
  // The tables that are known only at the end: after next() returned false. Of a spool that grows, as they are so far.
  void finish(Batches& batches);
  std::unique_ptr<Batch> inputs() const;

  const std::string& process() const { return definitions_.process; }
  const layout::EventsHeader& header() const { return blocks_.header(); }
  int64_t start_ns() const { return clock_.time_ns(windows_.show_all() ? header().start_tick : windows_.begin()); }
  int64_t end_ns() const { return clock_.time_ns(windows_.show_all() ? end_tick() : windows_.end()); }

 private:
  static constexpr size_t kBatchRows = 1 << 16;

  uint64_t end_tick() const;
  void settle();
  void emit(Batches& batches);

  Descriptor definitions_file_;
  Definitions definitions_;
  SpoolBlocks blocks_;
  SpoolClock clock_;
  Windows windows_;
  Steps steps_;
  CallRows rows_;
  CallCounters counters_;
  ForwardCalls forward_calls_;
  OpenCalls open_calls_;
  LateEnds late_ends_;
  MemoryPairing memory_;
  Moments moments_;
  EventReader reader_;
  OpsTable ops_;
  uint64_t promised_ = 0;  // every event before this tick has been read
  bool finished_ = false;
};

}  // namespace torchreel
