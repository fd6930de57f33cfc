// A recorded history, run again: the simulator gets the requests and the frees of it, and the addresses of new
// segments. All else must come out by itself, and is held against what was recorded.
//
// What one request made the allocator do lies in one piece before its `alloc` or `oom`, because the allocator holds its
// lock meanwhile:
//
//     [free_completed ...] [segment_free|segment_unmap ...] [segment_alloc|segment_map ...] alloc
//
// Such a piece is a window here. The device's refusals are read from it: the device refused if the recorded allocator
// went on to release something, or to give up.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "simulator/recorded/correction.h"
#include "simulator/recorded/rebuilt_state.h"
#include "simulator/recorded/start_state.h"

namespace torchreel::simulator {

struct RecordedEvent {
  Action action;
  uint64_t address;
  uint64_t size;
  uint64_t stream;
  int pool;  // -1: the file does not say
};

struct Score {
  int64_t matched = 0;
  int64_t total = 0;
  int64_t extra = 0;  // what the simulator did and nobody recorded
};

// The first place where the two parted.
struct Mismatch {
  int64_t event;  // index in the history
  Action recorded_action;
  uint64_t recorded_address;
  uint64_t recorded_size;
  Action simulated_action;
  uint64_t simulated_address;
  uint64_t simulated_size;
};

// What a history tells of its start, learned on the way and to be taken into account in another run.
struct Lessons {
  // Old counters (segments' or blocks', as the order has it) of which the first is known to be less than the second.
  std::vector<std::pair<int64_t, int64_t>> ties;
  // Bytes that belong to old blocks besides those that were asked for, by address.
  std::unordered_map<uint64_t, uint64_t> slack;
  // Address space of an expandable segment can be no more than this.
  std::optional<uint64_t> range_bytes;
};

class RecordedRun : public Gpu {
 public:
  RecordedRun(const Rules& rules, const std::vector<RecordedEvent>& events, const StartState& start, bool learns);

  void run();

  const Score& allocs() const { return allocs_; }
  const Score& segment_events() const { return segment_events_; }
  const std::optional<Mismatch>& mismatch() const { return mismatch_; }
  const Lessons& lessons() const { return lessons_; }
  int64_t old_counters() const { return old_counters_; }
  Simulator& simulator() { return simulator_; }

  bool grants(Simulator& simulator, const Request& request) override;
  std::optional<uint64_t> allocate(const Request& request) override;
  void free(const Block& block) override;
  uint64_t reserve(const Request& request, uint64_t bytes) override;
  bool map(uint64_t address, uint64_t bytes) override;
  void unmap(const Block& block, uint64_t address, uint64_t bytes) override;
  void synchronize(Simulator& simulator) override;
  uint64_t garbage(Simulator& simulator) override;
  bool releases_oversize(Simulator& simulator, const Request& request) override;
  bool releases_cached(Simulator& simulator, const Request& request) override;
  bool is_enough(uint64_t released, uint64_t wanted) override;
  std::vector<PoolPair*> released_pools(Simulator& simulator) override;
  FreeSet::iterator choose(const Request& request, FreeSet::iterator first) override;
  void arrange(std::vector<Block*>& victims, bool descending) override;

 private:
  // What was released though nobody recorded it.
  struct Released {
    uint64_t address;
    uint64_t size;
    uint64_t stream;
    Pool* pool;
    bool mapped;
  };

  void step();
  void request_free(const RecordedEvent& event);
  void complete_free(const RecordedEvent& event);
  void window();
  void malloc_window();
  void complete_before_search();
  bool found_by_growing();
  void release_window();
  bool release_run();
  void settle(Block* block);
  void finish_window();
  void correct(size_t index);
  void restore();

  Request wanted();
  int pool_of(const RecordedEvent& event);
  int pool_without(const RecordedEvent& event);
  bool ahead(bool (*kind)(Action)) const;
  std::vector<size_t> releases_ahead() const;
  const RecordedEvent* peek();
  void consume(size_t index);
  void complete(size_t index);
  bool serves(const RecordedEvent& event, const Request& request);
  bool releases_garbage();
  bool would_be_released(const RecordedEvent& event);
  bool was_cut_off();
  std::vector<Block*> everything_cached(const BlockSet& gone);
  bool releases_everything();
  bool makes_room(const std::vector<size_t>& ahead, BlockSet gone);
  void place();
  void differ(size_t event, Action action, uint64_t address, uint64_t size);

  size_t restored_blocks();
  void restore_checkpoint(size_t count);

  void release(const Released& released);
  bool announced(const std::vector<size_t>& ahead, size_t from, std::vector<Block*> victims) const;
  bool in_release_ahead_of_private();

  std::optional<uint64_t> expected_block() const;
  FreeSet::iterator choose_expandable(const Request& request, FreeSet::iterator first, uint64_t expected);
  FreeSet::iterator learn_tie(FreeSet& free, FreeSet::iterator first, uint64_t expected);
  FreeSet::iterator learn_walk(const Request& request, FreeSet::iterator first, uint64_t expected);
  bool learn_slack(const Request& request, Block* candidate, std::optional<uint64_t> expected);
  void learn_range(uint64_t address, uint64_t recorded);
  void learn_tail(const Request& request, FreeSet& free, uint64_t expected);
  void bound_ranges(uint64_t bytes);
  void grow(Block* block, uint64_t bytes);

  const std::vector<RecordedEvent>& events_;
  RebuiltState simulator_;
  std::unordered_map<uint64_t, Block*> live_;
  Correction correction_;
  std::vector<uint8_t> done_;  // which events of a window are reproduced, or done by force
  const bool learns_;
  bool mid_run_ = false;
  int64_t old_counters_ = 0;  // counters below are older than the history

  size_t at_ = 0;
  size_t begin_ = 0;         // of the window
  size_t end_ = 0;           // where its alloc or oom is
  Request request_{};        // that of the window
  bool in_request_ = false;  // the simulator is serving it
  bool parted_ = false;      // the simulator has done something else in this window
  bool correcting_ = false;
  int64_t consumed_ = 0;
  int64_t consumed_releases_ = 0;   // in this window
  std::vector<Released> released_;  // in this window, though nobody recorded it
  uint64_t next_made_up_ = uint64_t{1} << 62;

  Score allocs_;
  Score segment_events_;
  std::optional<Mismatch> mismatch_;
  Lessons lessons_;
};

}  // namespace torchreel::simulator
