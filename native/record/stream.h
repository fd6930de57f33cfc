// A stream: the events of one thread. Only that thread writes; the flusher reads what is behind the cursor.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "base/small_cache.h"
#include "base/spool_format.h"

#define TORCHREEL_LIKELY(x) __builtin_expect(!!(x), 1)
#define TORCHREEL_UNLIKELY(x) __builtin_expect(!!(x), 0)

namespace torchreel {

class Recording;
struct StackCache;
struct InputsCache;
struct CounterGroup;

// Room that one event may need at the most: the longest inputs or name, and all that belongs to them.
constexpr size_t kLongestEvent = 1600;
constexpr size_t kMaxInlineWords = 1024;

// A piece of a stream. `state` is the stream's state before its first word, so that it decodes without its
// predecessors, which a flight recorder may have overwritten.
struct Chunk {
  uint64_t* words = nullptr;
  size_t capacity = 0;
  size_t used = 0;
  size_t flushed = 0;
  uint64_t order = 0;  // when it was sealed, among all chunks
  bool exact = false;  // just as large as what it holds, and not of the pool's slabs
  layout::BlockHeader state{};
};

struct NameSlot {
  const void* key = nullptr;
  uint32_t id = 0;
};

struct Stream {
  std::atomic<uint64_t*> cursor{nullptr};
  // Set to nullptr by whoever stops the recording: the thread then finds itself without room, and looks up why.
  std::atomic<uint64_t*> limit{nullptr};
  // Within an event. Who has taken the limit away, and then sees this clear behind a barrier of all threads, may take
  // what the thread holds.
  std::atomic<bool> writing{false};
  uint64_t last_tick = 0;
  int64_t last_seq = -1;
  uint32_t stack = 0;
  uint32_t id = 0;
  uint32_t model = 0;  // the one that it was last known to work for
  // Of the last stack: whether TorchScript's frames are in it, and the Python stack below them.
  bool scripted = false;
  uint32_t python_stack = 0;
  int open_ops = 0;  // operators under way: while there are any, the Python stack is the one they began with
  uint64_t epoch = 0;
  Recording* recording = nullptr;
  StackCache* stacks = nullptr;
  InputsCache* inputs = nullptr;
  CounterGroup* counters = nullptr;
  SmallCache<NameSlot, 64, 1024> names;

  std::mutex mutex;  // guards what follows: a chunk being changed while the flusher reads
  Chunk chunk;
  std::deque<Chunk> sealed;
  bool dead = false;              // its thread has ended
  bool gap = false;               // events were lost since the last chunk
  uint64_t* rested_at = nullptr;  // its cursor when the flusher last came, and how often it has found it there since
  int rested = 0;

  ~Stream();
};

// One pointer of static TLS: a dozen kilobytes of it would keep the extension from loading.
extern __thread Stream* current_stream __attribute__((tls_model("initial-exec")));

// From now on the calling thread has no stream.
void leave_stream();

// Makes room in the thread's stream: a new chunk, or a new stream. Null if nothing is being recorded.
Stream* make_room();

// The calling thread's stream with room for one event, or null if nothing is being recorded. The thread is within the
// event until commit_event() or leave_event().
inline Stream* writable_stream() {
  Stream* stream = current_stream;
  stream->writing.store(true, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  if (TORCHREEL_UNLIKELY(stream->cursor.load(std::memory_order_relaxed) >=
                         stream->limit.load(std::memory_order_relaxed))) {
    return make_room();
  }
  return stream;
}

// There is nothing to be written after all.
inline void leave_event(Stream* stream) { stream->writing.store(false, std::memory_order_release); }

// Whether there is anything to end: never makes a stream.
inline Stream* open_stream(uint64_t epoch) {
  Stream* stream = writable_stream();
  if (stream == nullptr || stream->epoch == epoch) return stream;
  leave_event(stream);
  return nullptr;
}

inline uint64_t* begin_event(Stream* stream) { return stream->cursor.load(std::memory_order_relaxed); }
inline void commit_event(Stream* stream, uint64_t* end) {
  stream->cursor.store(end, std::memory_order_release);
  stream->writing.store(false, std::memory_order_release);
}

// The first word of an event, with the ticks since the last one; writes a kTime before it where they are too many.
inline uint64_t* put_head(Stream* stream, uint64_t* at, uint64_t tag, uint64_t id, uint64_t flags = 0) {
  uint64_t now = ticks();
  uint64_t passed = now - stream->last_tick;
  if (TORCHREEL_UNLIKELY(passed > layout::kMaxTicks)) {
    *at++ = layout::kTime;
    *at++ = now;
    passed = 0;
  }
  stream->last_tick = now;
  *at++ = tag | (flags << layout::kFlagShift) | (id << layout::kIdShift) | (passed << layout::kTicksShift);
  return at;
}

// Writes a kStack if the thread's Python stack is another than at its last event.
uint64_t* put_stack(Stream* stream, uint64_t* at);

// Chunks of memory for streams, carved from slabs of huge pages and used again. Thread-safe.
class ChunkPool {
 public:
  // Chunks of this size; at most so many bytes of them.
  void configure(size_t chunk_bytes, size_t most_bytes);
  // Null words when there are none left.
  Chunk take();
  // A chunk of exactly so many words. Null words when there is no memory.
  Chunk take_exact(size_t words);
  void give(const Chunk& chunk);
  // Unmaps all that was given back; what streams still hold is theirs.
  void release();
  size_t bytes_in_use() const { return in_use_.load(std::memory_order_relaxed); }
  size_t bytes_mapped() const { return mapped_.load(std::memory_order_relaxed); }

  void prepare_fork() { mutex_.lock(); }
  void parent_after_fork() { mutex_.unlock(); }
  // Gives the parent's memory back, and begins anew.
  void child_after_fork();

 private:
  static constexpr size_t kSlabBytes = 4 << 20;
  static constexpr size_t kHugePage = 2 << 20;

  struct Slab {
    size_t bytes;
    size_t chunk_bytes;
    std::vector<uint64_t*> free;
    bool is_free() const { return free.size() * chunk_bytes == bytes; }
  };
  using Slabs = std::map<uintptr_t, Slab>;

  bool add_slab();
  Slabs::iterator unmap(Slabs::iterator slab);

  std::mutex mutex_;
  size_t chunk_bytes_ = 64 << 10;
  size_t most_ = 512 << 20;
  std::atomic<size_t> in_use_{0};
  std::atomic<size_t> mapped_{0};
  Slabs slabs_;  // by address: the first that has room is used, so that the last ones become free
};

// Every thread of the process has passed a barrier when this returns true; false where the kernel cannot do it.
bool barrier_all_threads();

}  // namespace torchreel
