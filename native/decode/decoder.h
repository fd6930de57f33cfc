// A spool -> tables: events are paired, nested, given self time, and joined with allocs, steps, modules and their
// forward calls, in one pass and in bounded memory. No torch, no Python.
//
// Threads are decoded block by block, so at any moment some have been read further than others. What concerns two
// threads (a range that ends elsewhere, a block freed elsewhere) waits until a promise in the file says that every
// event before it has been read.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/spool_format.h"
#include "decode/arrow.h"
#include "decode/definitions.h"
#include "decode/script_modules.h"

namespace torchreel {

using Batches = std::vector<std::pair<std::string, std::unique_ptr<Batch>>>;

// The files of a spool as they were at one moment: they only grow, but for the head of the events.
struct SpoolFiles {
  int definitions;  // descriptors, which the decoder closes
  int events;
  uint64_t definitions_size;
  uint64_t events_size;
  std::string head;  // the first bytes of the events

  // Throws SpoolError.
  static SpoolFiles in(const std::string& directory);
};

class Decoder {
 public:
  // A span of ticks, from and to.
  using Window = std::pair<uint64_t, uint64_t>;
  using Step = std::pair<uint64_t, uint64_t>;  // number and tick

  // Throws SpoolError. Of a directory all that is there; of files what was there at an earlier moment.
  explicit Decoder(const std::string& directory);
  explicit Decoder(SpoolFiles files);
  // Only what begins within the windows, as if the recording had been on in them alone; with steps of its own.
  void restrict_to(std::vector<Window> windows, const std::vector<Step>& steps);
  ~Decoder();
  Decoder(const Decoder&) = delete;

  // The next rows of ops, allocs, marks, flows and counters; false at the end of the file.
  bool next(Batches& batches);
  // The tables that are known only at the end. After next() returned false.
  void finish(Batches& batches);
  std::unique_ptr<Batch> inputs() const;

  const std::string& process() const { return definitions_.process; }
  const layout::EventsHeader& header() const { return header_; }
  int64_t start_ns() const { return nanoseconds(windows_.empty() ? header_.start_tick : windows_.front().first); }
  int64_t end_ns() const { return nanoseconds(windows_.empty() ? end_tick_ : windows_.back().second); }

 private:
  static constexpr int32_t kNoRow = -1;
  static constexpr size_t kBatchRows = 1 << 16;

  struct Row {
    int64_t id;
    int64_t parent = -1;
    int64_t fwd = -1;
    int64_t seq = -1;
    int64_t alloc = 0;
    int64_t self_alloc = 0;
    uint64_t begin;
    uint64_t end = 0;
    uint64_t children = 0;  // ticks
    uint64_t key = 0;
    uint64_t fwd_torch_thread = 0;
    int32_t parent_row = kNoRow;
    uint32_t thread;
    uint32_t name;
    int32_t depth;
    int32_t step = -1;
    uint32_t module = layout::kNone;
    uint32_t stack = 0;
    uint32_t inputs = layout::kNone;
    uint32_t end_thread = layout::kNone;
    uint32_t counters = layout::kNone;
    uint32_t script = layout::kNone;  // the name that tells the modules of TorchScript within which it stands
    int64_t handle = -1;
    int64_t record_id = -1;
    bool ended = false;
    bool cut = false;  // ended with the recording, not by itself
    bool async = false;
    bool of_backward = false;  // module and stack are those of a forward call
    bool hidden = false;       // began outside of the windows
  };

  struct ForwardCall {
    int64_t seq;
    int64_t id;
    uint32_t module;
    uint32_t stack;
  };

  // The last differentiable calls of a thread, by sequence number. It grows with what the thread does: most threads do
  // little.
  struct ForwardCalls {
    static constexpr size_t kFirst = 128;
    static constexpr size_t kMost = 1 << 17;  // how many calls back a backward call may find its forward call
    std::vector<ForwardCall> calls;
    uint64_t written = 0;  // when it was last written to, among all
    // The bytes that it grew by.
    size_t add(const ForwardCall& call);
    const ForwardCall* find(int64_t seq) const;
  };

  struct Thread {
    bool seen = false;
    uint64_t tick = 0;
    int64_t seq = -1;
    uint32_t stack = 0;
    size_t step = 0;  // steps that have begun
    std::vector<int32_t> open;
    size_t hidden = 0;  // how many of those are
    uint32_t inline_name = layout::kNone;
    uint32_t inline_inputs = layout::kNone;
    int64_t handle = -1;
    uint32_t script = layout::kNone;  // of the next begin
    int64_t record_id = -1;
    std::vector<uint64_t> counters;
  };

  struct Memory {
    uint64_t tick;
    uint64_t address;
    uint64_t bytes;
    int32_t row;
    uint32_t thread;
    uint32_t stack;
    bool is_free;
    bool is_segment;
  };

  struct ResolvedMemory {
    uint64_t tick;
    uint64_t address;
    int64_t bytes;
    int64_t total;
    int64_t op;
    int64_t alloc;
    uint32_t thread;
    uint32_t stack;
    uint32_t category;
    int action;
  };

  struct LiveBlock {
    int64_t bytes;
    int64_t alloc;
    uint32_t stack;
    uint32_t category;
  };

  struct LateEnd {
    uint64_t key;
    uint64_t tick;
    uint32_t thread;
  };

  struct Moment {
    uint64_t tick;
    uint32_t thread;
    uint32_t name;
    int64_t op;
    uint64_t flow = 0;
    bool in = false;
  };

  struct Counter {
    int64_t op;
    uint32_t counter;
    int64_t value;
  };

  bool read_block();
  void decode_words(uint32_t id, const uint64_t* at, const uint64_t* end);
  const uint64_t* decode_begin(Thread& thread, uint32_t id, uint64_t head, const uint64_t* at, const uint64_t* end);
  const uint64_t* decode_inline(Thread& thread, uint64_t head, const uint64_t* at, const uint64_t* end);
  void begin_row(Thread& thread, uint32_t id, Row& row);
  void link_forward(Row& row);
  void share_with_engine(const Row& row);
  void keep_forward(uint64_t torch_thread, const Row& row);
  void end_innermost(Thread& thread);
  void end_keyed(Thread& thread, uint32_t id, uint64_t key);
  void end_open(Thread& thread, size_t position, uint64_t tick);
  void cut_open(Thread& thread, uint64_t tick);
  void end_elsewhere(int32_t index, const LateEnd& end);
  void resolve(uint64_t before);
  void resolve_ends(uint64_t before);
  void resolve_memory(uint64_t before);
  void resolve_one(const Memory& event);
  void resolve_segment(const Memory& event);
  void add_old_blocks();
  uint32_t inline_name(const std::string& name, uint32_t kind);
  uint32_t inline_inputs(std::vector<uint64_t> words);
  uint32_t category_id(const std::string& category);
  int64_t nanoseconds(uint64_t tick) const;
  int64_t thread_of(uint64_t torch_id) const;
  int32_t innermost(const Thread& thread) const;
  int64_t top(const Thread& thread) const;
  bool is_in_window(uint64_t tick) const;
  void show_living_blocks();
  void emit(Batches& batches, uint64_t before);
  std::unique_ptr<Batch> ops_batch(const std::vector<char>& leaves);
  std::unique_ptr<Batch> allocs_batch();
  void add_final_state(Batches& batches);
  std::unique_ptr<Batch> moments_batch(const std::vector<Moment>& moments, bool flows);
  std::unique_ptr<Batch> counters_batch();
  void charge_parents(const std::vector<char>& leaves);
  void carry(const std::vector<char>& leaves);

  Definitions definitions_;
  layout::EventsHeader header_{};
  int file_ = -1;
  uint64_t offset_ = 0;
  uint64_t size_ = 0;
  std::vector<uint64_t> words_;
  double ns_per_tick_ = 1;
  uint64_t end_tick_ = 0;
  uint64_t promised_ = 0;
  bool finished_ = false;

  std::vector<Row> rows_;
  std::vector<Thread> threads_;
  std::unordered_map<uint64_t, ForwardCalls> forward_;
  ForwardCalls* last_forward_ = nullptr;
  uint64_t last_forward_thread_ = 0;
  uint64_t forward_written_ = 0;
  size_t forward_bytes_ = 0;
  std::unordered_map<uint64_t, uint32_t> thread_of_torch_id_;
  std::vector<int32_t> unlinked_;
  ScriptModules script_modules_;
  std::vector<Memory> memory_;
  std::vector<ResolvedMemory> allocs_;
  std::unordered_map<uint64_t, LiveBlock> live_;
  std::unordered_map<uint64_t, int64_t> segments_;  // of a caching heap: bytes by address
  std::vector<LateEnd> late_ends_;
  std::vector<Moment> marks_;
  std::vector<Moment> flows_;
  std::vector<Counter> counters_;
  std::vector<std::vector<uint64_t>> begin_counters_;
  std::unordered_map<std::string, uint32_t> inline_names_;
  std::unordered_map<std::string, uint32_t> inline_inputs_;
  std::vector<std::string> categories_;
  int64_t next_id_ = 0;
  int64_t next_alloc_ = 0;
  int64_t total_bytes_ = 0;
  std::vector<Window> windows_;
  bool living_shown_ = true;
};

}  // namespace torchreel
