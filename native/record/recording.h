// A recording: the tables, the streams of its threads, and the flusher that brings them to disk.
// There is one at a time. A forked child abandons its parent's and may begin its own.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cpython/frames.h"
#include "record/inputs.h"
#include "record/names.h"
#include "record/spool.h"
#include "record/stream.h"

namespace torchreel {

struct RecordingOptions {
  std::string spool;    // directory to stream to; empty for a flight recorder
  std::string process;  // JSON: what the process says about itself
  size_t ring_bytes = 0;
  size_t memory_bytes = 512 << 20;  // most that may wait for the disk
  bool shapes = false;
  bool memory = false;
  bool stacks = false;
  bool modules = false;  // also those within TorchScript's
  bool models = false;   // only what happens within calls of models
  std::vector<std::string> counters;
  std::vector<std::string> hidden_files;
};

// Frames and stacks as definitions of a spool.
class SpoolStacks final : public StackSink {
 public:
  explicit SpoolStacks(Spool& spool) : spool_(spool) {}
  void frame(uint32_t id, int line, const std::string& file, const std::string& function) override {
    spool_.define(layout::kFrameDef, Payload().u32(id).u32(line).text(file).text(function));
  }
  void stack(uint32_t id, uint32_t parent, uint32_t frame) override {
    spool_.define(layout::kStackDef, Payload().u32(id).u32(parent).u32(frame));
  }

 private:
  Spool& spool_;
};

class Recording {
 public:
  explicit Recording(RecordingOptions options);

  // The one that runs, or null. Does not require the GIL.
  static Recording* active() { return active_.load(std::memory_order_acquire); }
  static uint64_t epoch() { return epoch_.load(std::memory_order_relaxed); }

  void start();
  // After this no thread begins an event; what each wrote before is on disk. Releases nothing of Python's. Returns
  // whether no thread is within an event any more, so that what they shared may be forgotten.
  bool stop();
  // Forgets names, inputs and stacks. Needs the GIL, and that no thread is within an event.
  void forget_tables();
  // Writes what a flight recorder holds now to a spool of its own, and goes on. Returns errno, or 0.
  int dump(const std::string& spool);
  // All that was written before the call is on disk when it returns.
  void flush();

  // A step begins, now or at an earlier tick.
  void define_step(uint64_t number, layout::StepKind kind, uint64_t tick);
  uint64_t start_tick() const { return start_steady_.tick; }
  uint32_t define_module(uint32_t id, uint32_t parent, std::string_view path, std::string_view type);
  void count_lost() { lost_.fetch_add(1, std::memory_order_relaxed); }
  uint64_t lost() const { return lost_.load(std::memory_order_relaxed); }
  uint64_t overwritten() const { return overwritten_; }

  const RecordingOptions options;
  Spool spool;
  NameTable names;
  InputsTable inputs;
  SpoolStacks stack_definitions;
  FrameTable frames;

 private:
  friend Stream* make_room();
  friend struct ThreadExit;
  friend void prepare_fork();
  friend void parent_after_fork();
  friend void child_after_fork();

  bool adopt(Stream* stream);
  void equip(Stream* stream);
  bool next_chunk(Stream* stream);
  void seal(Stream* stream);
  void seal_exactly(Stream* stream);
  bool take_back(Stream* stream);
  void rest(Stream* stream);
  Chunk recycle_oldest();
  bool forget_oldest();
  bool seal_idle_streams();
  bool release_streams();
  bool flush_stream(Stream* stream, Spool& target, bool whole);
  enum class Pass { kGoesOn, kLast, kDying };
  void flush_pass(Pass pass);
  void run_flusher();
  friend void flush_before_death();
  layout::EventsHeader header(bool closed) const;

  static std::atomic<Recording*> active_;
  static std::atomic<uint64_t> epoch_;

  Moment start_realtime_{};
  Moment start_steady_{};
  std::atomic<uint64_t> lost_{0};
  uint64_t overwritten_ = 0;
  std::atomic<uint64_t> seal_order_{0};
  std::atomic<uint32_t> next_thread_{0};
  std::mutex flush_mutex_;  // one pass at a time
  std::mutex wake_mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::atomic<bool> dying_{false};  // a signal ends the process: all is to be on disk at once
  std::atomic<bool> flushed_dying_{false};
  static std::atomic<bool> ending_;  // stop() is at work
  std::thread flusher_;
};

// In the handler of a signal that ends the process: waits until the flusher has brought all to disk, but not for long.
void flush_before_death();
// What all recordings hold now for threads: how many of them there are, the bytes of their chunks, those that are
// mapped for chunks, and those of their caches.
struct ThreadMemory {
  size_t threads, chunks, mapped, caches;
};
ThreadMemory thread_memory();

// Registers what must happen around fork(). Once per process.
void watch_forks();

// Python's name for the calling thread, if it has one: set by the binding. Called with the GIL.
extern std::string (*python_thread_name)();

}  // namespace torchreel
