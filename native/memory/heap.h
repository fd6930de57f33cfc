// The caching heap for CPU tensors: segments from the system, blocks cut from them, caches of the threads before them.
//
// A segment is mapped in whole huge pages and holds blocks of one pool: small (up to 1 MiB, in 2 MiB segments) or
// large. Blocks tile their segment; each begins with a header of 64 bytes, so that what follows it is aligned as torch
// wants it:
//
//     segment ┌────────┬───────────────┬────────┬──────────┬────────┬────────────┐
//             │ header │ data          │ header │ data     │ header │ (free)     │
//             └────────┴───────────────┴────────┴──────────┴────────┴────────────┘
//
// Free blocks of a pool are kept by size: the smallest that fits is taken, split if much is left, and joined with free
// neighbours when it comes back. Small blocks come in size classes and pass through a cache of the freeing thread
// first. Pages that stay free for longer than the decay go back to the system, also those of a free block whose other
// pages are in use again and again. Nothing here requires the GIL or uses torch.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>
#include <vector>

#include "memory/tally.h"

namespace torchreel {

struct Segment;

enum class BlockState : uint8_t { kFree, kActive, kCached, kPurging };

struct alignas(64) Block {
  size_t size = 0;                   // with the header
  std::atomic<size_t> requested{0};  // set by the thread that allocates from its cache, read by whoever visits
  Block* previous = nullptr;
  Block* next = nullptr;
  Segment* segment = nullptr;
  uint64_t freed_ms = 0;    // in small segments; large ones have the ages of their parts
  uint32_t stack = 0;       // of the history, when it was allocated
  uint32_t stack_from = 0;  // the history that the stack belongs to
  std::atomic<BlockState> state{BlockState::kFree};
  uint8_t size_class = 0;  // 0: none, it is not cached by threads
  bool purged = false;     // in small segments: its whole pages are not resident

  void* data() { return this + 1; }
  static Block* of(void* data) { return static_cast<Block*>(data) - 1; }
};
constexpr size_t kHeader = sizeof(Block);
static_assert(kHeader == 64);

struct Segment {
  char* address;
  size_t size;
  bool small;
  uint32_t stack = 0;
  uint32_t stack_from = 0;
  Block* first() { return reinterpret_cast<Block*>(address); }
};

struct HeapOptions {
  bool huge_pages = true;  // for segments of 20 MiB and more
  bool thread_caches = true;
  uint64_t decay_ms = 10'000;  // 0: pages stay until empty_cache()
};

struct HeapStats {
  // Sums of what came and went; levels and peaks are in the tally.
  struct Pool {
    uint64_t allocs = 0, frees = 0, alloc_bytes = 0, free_bytes = 0, requested = 0, freed_requested = 0;
  };
  Pool small, large;
  // Free blocks beside others, in the small pool, the large one and all; of them no level is in the tally.
  Tally::Stat split_blocks[Tally::kPools], split_bytes[Tally::kPools];
  uint64_t reserved = 0, segment_allocs = 0, segment_frees = 0;
  uint64_t allocated = 0, cached = 0, purged = 0, purges = 0;
  uint64_t retries = 0, ooms = 0, limit = 0;
};

// Held around an alloc or free together with what is written about it, so that a reader who holds it finds the heap
// and the history of it in agreement. Taken before the heap's own lock.
class Gate {
 public:
  void lock() {
    mutex_.lock();
    mine_ = true;
  }
  void unlock() {
    mine_ = false;
    mutex_.unlock();
  }
  // Whether the calling thread holds it.
  static bool mine() { return mine_; }

 private:
  std::mutex mutex_;
  static __thread bool mine_ __attribute__((tls_model("initial-exec")));
};

class Heap {
 public:
  // Told of every segment, under the heap's lock; must not allocate tensors or take the GIL.
  using SegmentObserver = void (*)(Segment& segment, bool allocated);

  static Heap& get();

  void configure(const HeapOptions& options);
  // `decayed` is called in the thread of the decay, without a lock, after each round.
  void observe_segments(SegmentObserver observer, void (*decayed)()) {
    observer_ = observer;
    decayed_.store(decayed);
  }
  // Null if the limit or the system refuses.
  Block* allocate(size_t bytes);
  void free(Block* block);

  // Gives back what is free: the bytes that went to the system.
  size_t empty_cache();
  // 0 for none. Counts the bytes of segments.
  void set_limit(size_t bytes);
  size_t limit() const { return limit_.load(std::memory_order_relaxed); }
  // An error was raised for want of memory.
  void count_oom();
  HeapStats stats();
  void reset_peaks();
  size_t allocated() { return stats().allocated; }

  // All segments in the order of their addresses; the heap is locked while the visitor runs.
  template <class Visitor>
  void visit(Visitor visitor) {
    std::lock_guard lock(mutex_);
    for (Segment* segment : segments_) visitor(*segment);
  }

  // Whether a pointer is into one of our segments: one bit per 2 MiB of address space.
  static bool owns(const void* data) {
    auto page = reinterpret_cast<uintptr_t>(data) >> 21;
    const uint8_t* bits = owned_;
    return bits != nullptr && page < kPages && (__atomic_load_n(&bits[page >> 3], __ATOMIC_RELAXED) >> (page & 7) & 1);
  }

  Gate gate;

  void prepare_fork();
  void after_fork(bool child);

 private:
  struct BySize {
    bool operator()(const Block* a, const Block* b) const { return a->size != b->size ? a->size < b->size : a < b; }
  };
  struct ByAddress {
    bool operator()(const Segment* a, const Segment* b) const { return a->address < b->address; }
  };
  using FreeSet = std::set<Block*, BySize>;
  struct ThreadCache;
  struct ThreadExit;

  static constexpr size_t kPages = size_t(1) << 26;
  static uint8_t* owned_;

  static ThreadCache* make_cache();
  void flush(ThreadCache& cache);
  void retire(ThreadCache* cache);
  FreeSet& free_set(bool small) { return small ? small_ : large_; }
  HeapStats::Pool& pool(bool small) { return small ? stats_.small : stats_.large; }
  // With the lock held:
  void count_split(const Block* block, bool comes);
  void insert_free(Block* block);
  void erase_free(Block* block);
  Block* take(size_t size, bool small);
  Segment* map_segment(size_t size, bool small);
  // The rest behind the first bytes of a block, as a block of its own.
  static Block* split(Block* block, size_t size);
  void give(Block* block);
  Block* merge(Block* block);
  size_t release_free_segments(uint64_t freed_before_ms);
  void detach(Segment* segment);
  void start_decay();

  // Returns the bytes that went back to the system. Without the lock held, and with the purge's.
  size_t purge_old(uint64_t freed_before_ms);
  void run_decay();
  void decay_once(uint64_t freed_before_ms);

  std::mutex purge_mutex_;  // one purge at a time; taken before the gate
  std::mutex mutex_;
  HeapOptions options_;
  std::atomic<bool> thread_caches_{true};
  FreeSet small_, large_;
  std::set<Segment*, ByAddress> segments_;
  std::vector<ThreadCache*> caches_;
  HeapStats stats_;
  size_t reserved_ = 0;
  std::atomic<size_t> limit_{0};
  SegmentObserver observer_ = nullptr;
  std::atomic<void (*)()> decayed_{nullptr};
  std::atomic<uint64_t> flush_epoch_{0};  // caches of an older epoch empty themselves
  bool decaying_ = false;
};

}  // namespace torchreel
