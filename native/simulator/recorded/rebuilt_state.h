// A simulator whose state may be written, piece by piece: for histories that do not begin with an empty allocator, and
// for the places where a simulation and its recording part.
//
//     StartState ── segments, blocks ──►┐
//     Correction ── what was recorded ─►├── RebuiltState ── as any Simulator ──► malloc, free, empty_cache
//     RecordedRun ─ "would it find?" ──►┘
//
// RecordedRun owns it. Blocks that are added or cut are in no set of free blocks, unless it says so: whoever makes one
// inserts it into its pool.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "simulator/simulator.h"

namespace torchreel::simulator {

class RebuiltState : public Simulator {
 public:
  using Simulator::Simulator;

  // What it would do now, without doing it.
  bool would_find(const Request& request) { return search(request) != nullptr; }
  using Simulator::cached_victims;
  using Simulator::find_room;
  using Simulator::garbage_rounds;
  using Simulator::oversize_victims;
  using Simulator::room;
  using Simulator::search;
  using Simulator::walk;
  using Simulator::whole_pages;

  // A request whose parts are known one by one.
  using Simulator::malloc;
  using Simulator::malloc_by_growing;
  using Simulator::request;

  // Pieces of a state.
  using Simulator::add_segment;
  using Simulator::append_block;
  using Simulator::cut_front;
  using Simulator::hand_out;
  using Simulator::join;
  using Simulator::map;
  using Simulator::release_segment;
  using Simulator::segment_at;
  using Simulator::unmap;
  MemoryStats& stats() { return stats_; }

  // Places in the order for the first counters that are given, instead of the order in which they are.
  void set_ranks(std::vector<int64_t> ranks) { ranks_ = std::move(ranks); }
  // How many were given.
  int64_t counters() const { return next_counter_; }
  // Whether the device is asked which of equal blocks comes first.
  void learn_ties(bool on) { learns_ties_ = on; }
};

}  // namespace torchreel::simulator
