// The CUDA caching allocator as a model: it does with requests and frees what PyTorch's would have done, on a Gpu that
// is only addresses. No torch, no Python.
//
//     malloc ── a free block, the smallest that fits ── else memory from the Gpu ── else release, try again ── else OOM
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <memory_resource>
#include <unordered_set>
#include <utility>
#include <vector>

#include "simulator/gpu.h"
#include "simulator/rules.h"
#include "simulator/stats.h"

namespace torchreel::simulator {

enum class Action : int8_t {
  kAlloc,
  kFreeRequested,
  kFreeCompleted,
  kSegmentAlloc,
  kSegmentFree,
  kSegmentMap,
  kSegmentUnmap,
  kOom,
  kFree,  // of a program: requested and completed at once
  kEmptyCache,
  kReleasePool,  // nobody uses a private pool any more
  kPreexisting,  // a block that is older than the program
  kOther,
};

inline bool is_release(Action action) { return action == Action::kSegmentFree || action == Action::kSegmentUnmap; }
inline bool is_acquisition(Action action) { return action == Action::kSegmentAlloc || action == Action::kSegmentMap; }

// What the allocator did, as a memory snapshot's history has it.
struct TraceEntry {
  Action action;
  uint64_t address;
  uint64_t size;
  uint64_t stream;
  int pool;
};

using BlockSet = std::unordered_set<const Block*>;

class Simulator {
 public:
  Simulator(const Rules& rules, Gpu& gpu);
  Simulator(const Simulator&) = delete;

  // The block, or nullptr when there is no memory for it.
  Block* malloc(uint64_t requested, uint64_t stream, int pool);
  // Until it is completed the block can be used by nobody.
  void request_free(Block* block);
  void complete_free(Block* block);
  // Both at once.
  void free(Block* block);
  void empty_cache();
  // Made if it is not there yet.
  PoolPair& pool(int index);

  uint64_t reserved() const { return stats_.reserved_bytes.all.current; }
  const MemoryStats& stats() const { return stats_; }
  const Rules& rules() const { return rules_; }
  const std::map<uint64_t, Segment*>& segments() const { return segments_; }
  const std::vector<std::unique_ptr<PoolPair>>& pools() const { return pools_; }
  // In the order in which they were freed.
  const std::map<uint64_t, Block*>& pending() const { return pending_; }
  void trace_into(std::vector<TraceEntry>* trace) { trace_ = trace; }

  // The steps below are the simulator's own, and those of a state that was not reached by this simulation: see
  // recorded/rebuilt_state.h.
 protected:
  Request request(uint64_t requested, uint64_t stream, int pool);
  Block* malloc(Request request);
  // Of a request whose search for a free block has failed already.
  Block* malloc_by_growing(const Request& request);

  // What would be done now, without doing it.
  Block* search(const Request& request);
  Block* find_room(const Request& request);
  static uint64_t room(const Block* block);
  FreeSet::iterator walk(const Request& request, FreeSet::iterator it);
  static std::pair<uint64_t, uint64_t> whole_pages(const Block* block);
  std::vector<Block*> oversize_victims(const Request& request, const BlockSet& gone = {});
  std::vector<Block*> cached_victims(Pool& pool);
  std::vector<std::vector<Block*>> garbage_rounds();

  Segment* add_segment(uint64_t base, uint64_t size, uint64_t page);
  void remove_segment(Segment* segment);
  Block* append_block(Segment* segment, Pool* pool, uint64_t stream, uint64_t size, BlockState state, Block* last);
  Segment* segment_at(uint64_t address);
  void release_segment(Block* block);
  void unmap(Block* block);
  void unmap(Block* block, uint64_t begin, uint64_t end);
  bool map(Block* block, uint64_t bytes);
  void join(Block* block);
  Block* cut_front(Block* block, uint64_t size);
  Block* cut_back(Block* block, uint64_t address);
  Block* hand_out(Block* block, const Request& request);

  MemoryStats stats_;
  int64_t next_counter_ = 0;
  // Places in the order for the first counters that are given, instead of the order in which they are.
  std::vector<int64_t> ranks_;
  bool learns_ties_ = false;

 private:
  Block* find(const Request& request);
  FreeSet::iterator candidate(const Request& request, bool learns);
  Block* make_room(Request& request);
  Block* find_overflow(Request& request);
  Block* acquire(const Request& request);
  Block* acquire_segment(const Request& request);
  bool should_split(const Block* block, const Request& request) const;
  uint64_t merge(Block* block, Block* neighbour, BlockState state);
  void begin_free(Block* block);
  void finish_free(Block* block);

  Block* acquire_expandable(const Request& request);
  Block* find_expandable(const Request& request);

  void collect_garbage();
  bool release_oversize(const Request& request);
  void release_cached();
  void release_pool(Pool& pool);

  Block* piece(const Block* parent, uint64_t address, uint64_t size);
  int64_t next_counter();
  int64_t segment_counter();
  int64_t block_counter(const Block* parent);
  void reserve_bytes(const Pool& pool, uint64_t bytes);
  void record(Action action, uint64_t address, uint64_t size, uint64_t stream, const Pool* pool) {
    if (trace_ != nullptr) trace_->push_back({action, address, size, stream, pool->owner});
  }

  const Rules rules_;
  Gpu& gpu_;
  std::pmr::unsynchronized_pool_resource memory_;
  BlockArena arena_;
  std::deque<Segment> segment_store_;
  std::vector<Segment*> spare_segments_;
  std::map<uint64_t, Segment*> segments_;  // by base
  std::vector<std::unique_ptr<PoolPair>> pools_;
  std::map<uint64_t, Block*> pending_;  // in the order in which they were freed
  uint64_t next_ticket_ = 1;
  std::vector<TraceEntry>* trace_ = nullptr;
  bool at_peak_ = false;  // the reserved bytes reached a new peak for the request at hand
};

}  // namespace torchreel::simulator
