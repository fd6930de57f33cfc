// The history of CPU memory: a ring of what the allocator did, the stacks of what is alive, and the user's ranges.
// It is what torch keeps for CUDA, for tensors of the CPU. Writers hold the heap's gate; none requires the GIL.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/address_map.h"
#include "base/clock.h"
#include "cpython/frames.h"
#include "memory/heap.h"
#include "record/stream.h"

namespace torchreel {

struct ThreadHistory;

enum class Action : uint8_t {
  kAlloc,
  kFreeRequested,
  kFreeCompleted,
  kSegmentAlloc,
  kSegmentFree,
  kSnapshot,
  kOom,
  kSegmentMap,
  kSegmentUnmap,
};
constexpr const char* kActionNames[] = {"alloc",         "free_requested", "free_completed",
                                        "segment_alloc", "segment_free",   "snapshot",
                                        "oom",           "segment_map",    "segment_unmap"};

struct HistoryOptions {
  // Which stacks are kept: of nothing, of living blocks, of allocs too, of frees too.
  enum class Context : uint8_t { kNever, kState, kAlloc, kAll };

  bool events = true;  // false: only what is known of living blocks
  Context context = Context::kAll;
  bool native_stacks = false;  // C++ frames before the Python ones
  uint64_t max_entries = ~uint64_t(0);
  uint32_t skipped = 0;  // a bit for each action that is not kept
  bool annotations = true;
  bool own_annotations = false;  // of the thread that starts the history alone

  bool keeps(Action action) const { return (skipped >> static_cast<int>(action) & 1) == 0; }
};

struct HistoryEntry {
  uint64_t tick;
  uint64_t address;  // for an oom: the bytes that were free
  uint64_t size;
  uint32_t stack;
  uint32_t metadata;
  uint32_t region;   // of compiled code: a text
  uint32_t forward;  // the stack of the forward call, or with kForwardText its lines as a text
  uint32_t pool;     // a private one, or 0
  Action action;     // kFreeRequested stands for the completed one too
};
constexpr uint32_t kForwardText = 1u << 30;

// Called after an event of the calling thread, without any lock, for one event of torch's at a time. May throw nothing.
using EventObserver = void (*)(Action action, uint64_t address, uint64_t size, uint32_t pool);

// A ring that grows, a chunk at a time, until it holds the most that it may. A chunk is not written before it is used.
class HistoryRing {
 public:
  void reset(uint64_t most);
  // `events`: how many of torch's the entry stands for.
  void push(const HistoryEntry& entry, int events) {
    uint64_t at = count_ < most_ ? count_ : count_ % most_;
    if (TORCHREEL_UNLIKELY(at / kChunk >= chunks_.size())) chunks_.push_back(new_chunk());
    chunks_[at / kChunk][at % kChunk] = entry;
    count_++;
    events_ += events;
  }
  // Of all that was pushed, what is no longer held too.
  uint64_t events() const { return events_; }
  std::vector<HistoryEntry> entries() const;

 private:
  // Two huge pages: a history that grows pays for fresh memory, and most of all for the page faults.
  static constexpr uint64_t kHugePage = 2 << 20;
  static constexpr uint64_t kChunk = 2 * kHugePage / sizeof(HistoryEntry);
  struct Free {
    void operator()(HistoryEntry* entries) const { std::free(entries); }
  };
  using Chunk = std::unique_ptr<HistoryEntry[], Free>;
  Chunk new_chunk() const;

  std::vector<Chunk> chunks_;
  uint64_t most_ = 1;
  uint64_t count_ = 0;
  uint64_t events_ = 0;
};

struct Annotation {
  uint64_t tick;
  uint32_t name;
  bool start;
};

// A block that the system's allocator made, or that is older than the history, or one of a private pool.
struct LooseBlock {
  uint64_t size = 0;
  uint32_t stack = 0;
};

// A stack as its definitions: Python frames by the table's ids, C++ ones by program counters.
class StackList final : public StackSink {
 public:
  struct Frame {
    std::string file, function;
    int line;
  };
  void frame(uint32_t id, int line, const std::string& file, const std::string& function) override;
  void stack(uint32_t id, uint32_t parent, uint32_t frame) override;
  void clear();
  // Ids in `frames`, the innermost first.
  std::vector<uint32_t> frames_of(uint32_t stack) const;

  std::vector<Frame> frames;

 private:
  struct Link {
    uint32_t parent = 0, frame = 0;
  };
  std::vector<Link> links_{1};
};

// The stacks of a thread's latest differentiable calls, by their sequence numbers.
class ForwardCalls {
 public:
  void put(int64_t sequence, uint32_t stack) {
    calls_[sequence % kCalls].store(static_cast<uint64_t>(sequence) << 32 | stack, std::memory_order_relaxed);
  }
  // 0 if it is not known, or no longer.
  uint32_t get(int64_t sequence) const {
    uint64_t call = calls_[sequence % kCalls].load(std::memory_order_relaxed);
    return call >> 32 == (static_cast<uint64_t>(sequence) & 0xffffffff) ? static_cast<uint32_t>(call) : 0;
  }

 private:
  using Call = std::atomic<uint64_t>;
  static_assert(sizeof(Call) == sizeof(uint64_t));
  static constexpr int64_t kCalls = 1 << 17;
  struct Free {
    void operator()(Call* calls) const { std::free(calls); }
  };

  // Zeros that take no memory before they are written.
  static Call* empty_calls() {
    auto* calls = static_cast<Call*>(std::calloc(kCalls, sizeof(Call)));
    if (calls == nullptr) throw std::bad_alloc();
    return calls;
  }

  std::unique_ptr<Call[], Free> calls_{empty_calls()};
};

class History {
 public:
  static History& get();

  // Needs the GIL. `clear` forgets what was there before.
  void start(const HistoryOptions& options, bool clear);
  // Forgets everything. Needs the GIL.
  void stop();
  const HistoryOptions& options() const { return options_; }
  bool on() const { return on_.load(std::memory_order_relaxed); }

  // The calling thread's stack, to be asked for before the gate is taken: may take the GIL. 0 if none is wanted.
  uint32_t stack_of_alloc() { return options_.context >= HistoryOptions::Context::kState ? walk() : 0; }
  uint32_t stack_of_free() { return options_.context == HistoryOptions::Context::kAll ? walk() : 0; }

  // With the gate held:
  void write(Action action, uint64_t address, uint64_t size, uint32_t stack);
  void loose_alloc(void* address, size_t size, uint32_t stack);
  void loose_free(void* address, uint32_t stack);
  void heap_alloc(Block& block, uint32_t stack);
  void heap_free(Block& block, uint32_t stack);
  // A block that lived before the history: it is part of the state, and no event.
  void add_loose(uint64_t address, uint64_t size);
  // Of a private pool.
  void pool_event(Action action, uint64_t address, uint64_t size, uint32_t stack, uint32_t pool);
  uint32_t stack_in_pool(uint64_t address) const;

  void annotate(const char* name, bool start);
  void set_metadata(const std::string& text);
  std::string metadata();
  // The calling thread runs compiled code of this name, until it leaves it.
  void enter_region(const char* name);
  void leave_region();
  // The calling thread begins a call that autograd will know by this number.
  void note_forward(uint64_t thread, int64_t sequence);
  // It runs the backward of such a call, until it leaves it.
  void enter_backward(uint64_t thread, int64_t sequence);
  void leave_backward();

  // From now on events are told to the observer too; null for nobody.
  void observe(EventObserver observer) { observer_.store(observer); }
  bool observed() const { return observer_.load() != nullptr; }
  // Tells the observer of the calling thread's events, after the gate has been released.
  void tell_events() {
    if (TORCHREEL_UNLIKELY(observer_.load(std::memory_order_relaxed) != nullptr)) tell_pending();
  }
  // Events that were made within an observer, and not told.
  uint64_t untold() const { return untold_.load(std::memory_order_relaxed); }

  uint32_t generation() const { return generation_.load(std::memory_order_relaxed); }
  uint32_t stack_of(const Block& block) const { return block.stack_from == generation() ? block.stack : 0; }

  // For readers, who hold the gate.
  const HistoryRing& ring() const { return ring_; }
  const AddressMap<LooseBlock>& loose() const { return loose_; }
  bool find_loose(uint64_t address, LooseBlock& block) const { return loose_.get(address, block); }
  const std::vector<std::string>& texts() const { return texts_; }
  const std::vector<Annotation>& annotations() const { return annotations_; }
  uint64_t lost_annotations() const { return lost_annotations_; }
  const StackList& stacks() const { return stacks_; }
  Moment began() const { return began_; }
  // C++ frames of a stack (program counters, innermost first), and the Python stack below them.
  const std::vector<void*>* native_of(uint32_t stack, uint32_t& python) const;
  FrameTable& frames() { return frames_; }
  std::mutex& text_mutex() { return text_mutex_; }

  void prepare_fork() {
    frames_.mutex().lock();
    text_mutex_.lock();
  }
  void after_fork() {
    text_mutex_.unlock();
    frames_.mutex().unlock();
  }

 private:
  struct NativeStack {
    uint32_t python;
    std::vector<void*> counters;
  };
  static constexpr uint32_t kNative = 1u << 31;

  void push(Action action, uint64_t address, uint64_t size, uint32_t stack, uint32_t pool);
  void count(const LooseBlock& block, bool comes);
  void tell_pending();
  uint32_t walk();
  uint32_t walk_python(ThreadHistory& mine);
  bool knows_context(const ThreadHistory& mine) const;
  void renew_context(ThreadHistory& mine) const;
  uint32_t with_native(uint32_t python);
  uint32_t text(const std::string& text);
  void clear();
  void clear_annotations();

  HistoryOptions options_;
  std::atomic<bool> on_{false};
  std::atomic<uint32_t> generation_{1};
  std::atomic<uint32_t> starts_{0};  // how often the history was started or stopped
  Moment began_{};
  pthread_t starter_{};
  HistoryRing ring_;
  AddressMap<LooseBlock> loose_;
  AddressMap<LooseBlock> pooled_;
  std::atomic<EventObserver> observer_{nullptr};
  std::atomic<uint64_t> untold_{0};
  StackList stacks_;
  FrameTable frames_{stacks_};

  std::mutex text_mutex_;  // guards what follows
  std::unordered_map<std::string, uint32_t> text_ids_;
  std::vector<std::string> texts_{""};
  std::vector<Annotation> annotations_;
  uint64_t next_annotation_ = 0, lost_annotations_ = 0;
  std::unordered_map<uint64_t, std::shared_ptr<ForwardCalls>> forward_calls_;  // by thread
  std::vector<NativeStack> native_;
  std::unordered_multimap<uint64_t, uint32_t> native_ids_;
};

}  // namespace torchreel
