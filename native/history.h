// The history of CPU memory: a ring of what the allocator did, the stacks of what is alive, and the user's ranges.
// It is what torch keeps for CUDA, for tensors of the CPU. Writers hold the heap's gate; none requires the GIL.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "address_map.h"
#include "clock.h"
#include "frames.h"
#include "heap.h"
#include "stream.h"

namespace torchreel {

enum class Action : uint8_t { kAlloc, kFreeRequested, kFreeCompleted, kSegmentAlloc, kSegmentFree, kSnapshot, kOom };
constexpr const char* kActionNames[] = {
    "alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "snapshot", "oom"};

struct HistoryOptions {
  // Which stacks are kept: of nothing, of living blocks, of allocs too, of frees too.
  enum class Context : uint8_t { kNever, kState, kAlloc, kAll };

  bool events = true;  // false: only what is known of living blocks
  Context context = Context::kAll;
  bool native_stacks = false;  // C++ frames before the Python ones
  uint64_t max_entries = ~uint64_t(0);
  uint32_t skipped = 0;  // a bit for each action that is not kept
  bool annotations = true;

  bool keeps(Action action) const { return (skipped >> static_cast<int>(action) & 1) == 0; }
};

struct HistoryEntry {
  uint64_t tick;
  uint64_t address;  // for an oom: the bytes that were free
  uint64_t size;
  uint32_t stack;
  uint32_t metadata;
  Action action;  // kFreeRequested stands for the completed one too
};

// A ring that grows, a chunk at a time, until it holds the most that it may.
class HistoryRing {
 public:
  void reset(uint64_t most);
  // `events`: how many of torch's the entry stands for.
  void push(const HistoryEntry& entry, int events) {
    uint64_t at = count_ < most_ ? count_ : count_ % most_;
    if (at / kChunk >= chunks_.size()) chunks_.push_back(std::make_unique<HistoryEntry[]>(kChunk));
    chunks_[at / kChunk][at % kChunk] = entry;
    count_++;
    events_ += events;
  }
  // Of all that was pushed, what is no longer held too.
  uint64_t events() const { return events_; }
  std::vector<HistoryEntry> entries() const;

 private:
  static constexpr uint64_t kChunk = 1 << 14;
  std::vector<std::unique_ptr<HistoryEntry[]>> chunks_;
  uint64_t most_ = 1;
  uint64_t count_ = 0;
  uint64_t events_ = 0;
};

struct Annotation {
  uint64_t tick;
  uint32_t name;
  bool start;
};

// A block that the system's allocator made, or that is older than the history.
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

  void annotate(const char* name, bool start);
  void set_metadata(const std::string& text);

  uint32_t generation() const { return generation_.load(std::memory_order_relaxed); }
  uint32_t stack_of(const Block& block) const { return block.stack_from == generation() ? block.stack : 0; }

  // For readers, who hold the gate.
  const HistoryRing& ring() const { return ring_; }
  const AddressMap<LooseBlock>& loose() const { return loose_; }
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

  uint32_t walk();
  uint32_t with_native(uint32_t python);
  uint32_t text(const std::string& text);
  void clear();
  void clear_annotations();

  HistoryOptions options_;
  std::atomic<bool> on_{false};
  std::atomic<uint32_t> generation_{1};
  Moment began_{};
  HistoryRing ring_;
  AddressMap<LooseBlock> loose_;
  StackList stacks_;
  FrameTable frames_{stacks_};

  std::mutex text_mutex_;  // guards what follows
  std::unordered_map<std::string, uint32_t> text_ids_;
  std::vector<std::string> texts_{""};
  std::vector<Annotation> annotations_;
  uint64_t next_annotation_ = 0, lost_annotations_ = 0;
  std::vector<NativeStack> native_;
  std::unordered_multimap<uint64_t, uint32_t> native_ids_;
};

}  // namespace torchreel
