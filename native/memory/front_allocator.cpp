#include "memory/front_allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/Exception.h>
#include <pthread.h>

#include <atomic>
#include <mutex>
#include <utility>

#include "cpython/frames.h"
#include "memory/heap.h"
#include "memory/history.h"
#include "memory/holders.h"
#include "memory/private_pool_list.h"
#include "record/models.h"
#include "record/recorder.h"
#include "record/recording.h"
#include "record/stream.h"

namespace torchreel {

namespace {

enum Taps : uint32_t { kEvents = 1, kHistory = 2, kCaching = 4, kModelEvents = 8 };
std::atomic<uint32_t> taps{0};
c10::Allocator* inner = nullptr;
c10::DeleterFnPtr inner_free = nullptr;
std::atomic<OutOfMemoryObserver> oom_observer{nullptr};
__thread Placement* placement __attribute__((tls_model("initial-exec"))) = nullptr;

// Whether an alloc by this thread is an event of the recording. A free always is: its block may have been one.
bool tells_alloc(uint32_t now) {
  if (TORCHREEL_LIKELY((now & kModelEvents) == 0)) return (now & kEvents) != 0;
  Model* model = current_model();
  return model != nullptr && model->memory;
}

bool wants_stack(const Stream* stream) {
  if (stream->stacks == nullptr || stream->open_ops > 0) return false;
  Model* model = current_model();
  return model == nullptr || (model->wants & kStackWanted) != 0;
}

void write_alloc(void* address, size_t bytes, uint64_t flags = 0) {
  Stream* stream = writable_stream();
  if (TORCHREEL_UNLIKELY(stream == nullptr)) return;
  uint64_t* at = begin_event(stream);
  if (flags == 0 && wants_stack(stream)) at = put_stack(stream, at);
  at = put_head(stream, at, layout::kAlloc, 0, flags);
  *at++ = reinterpret_cast<uint64_t>(address);
  *at++ = bytes;
  commit_event(stream, at);
}

void write_free(void* address, uint64_t flags = 0) {
  Stream* stream = writable_stream();
  if (TORCHREEL_UNLIKELY(stream == nullptr)) return;
  uint64_t* at = begin_event(stream);
  at = put_head(stream, at, layout::kFree, 0, flags);
  *at++ = reinterpret_cast<uint64_t>(address);
  commit_event(stream, at);
}

// Under the heap's lock, so without a walk of the stack, which may want the GIL.
__thread uint32_t segment_stack __attribute__((tls_model("initial-exec"))) = 0;

void tell_segment(Segment& segment, bool allocated) {
  uint32_t now = taps.load(std::memory_order_relaxed);
  char* address = segment.address + kHeader;  // blocks are shown by their data, and so is their segment
  // A history that began while this thread was on its way here: the segment is as old as the history.
  if ((now & kHistory) && Gate::mine()) {
    History& history = History::get();
    if (allocated) {
      segment.stack = segment_stack;
      segment.stack_from = history.generation();
    }
    history.write(allocated ? Action::kSegmentAlloc : Action::kSegmentFree, reinterpret_cast<uint64_t>(address),
                  segment.size, allocated ? segment_stack : 0);
  }
  if (now & kEvents) {
    allocated ? write_alloc(address, segment.size, layout::kSegmentFlag) : write_free(address, layout::kSegmentFlag);
  }
}

// By the numbers of PoolChange.
constexpr Action kPoolActions[] = {Action::kSegmentMap, Action::kSegmentUnmap, Action::kAlloc, Action::kFreeRequested};

// What is left to try: give back all that is cached. Then tell everybody, and raise.
[[noreturn]] void out_of_memory(size_t bytes, uint32_t stack) {
  Heap& heap = Heap::get();
  heap.count_oom();
  size_t allocated = heap.allocated();
  size_t available = available_bytes();
  std::string message = describe_out_of_memory(bytes, available);
  if (taps.load(std::memory_order_relaxed) & kHistory) {
    std::lock_guard told(heap.gate);
    History::get().write(Action::kOom, available, bytes, stack);
  }
  History::get().tell_events();
  c10::profiledCPUMemoryReporter().OutOfMemory(bytes);
  if (auto observer = oom_observer.load()) observer(bytes, allocated, available);
  TORCH_CHECK_WITH(OutOfMemoryError, false, message);
}

Block* take_block(size_t bytes, uint32_t now, uint32_t stack) {
  Heap& heap = Heap::get();
  if ((now & kHistory) == 0) return heap.allocate(bytes);
  std::lock_guard told(heap.gate);
  segment_stack = stack;
  Block* block = heap.allocate(bytes);
  if (block != nullptr) History::get().heap_alloc(*block, stack);
  return block;
}

// A thread's first event finds its name, which runs Python: not under the heap's lock, where a segment is told of.
void open_stream_of_events(uint32_t now) {
  if ((now & kEvents) == 0) return;
  Stream* stream = writable_stream();
  if (stream != nullptr) leave_event(stream);
}

void* allocate_cached(size_t bytes, uint32_t now) {
  open_stream_of_events(now);
  uint32_t stack = now & kHistory ? History::get().stack_of_alloc() : 0;
  Block* block = take_block(bytes, now, stack);
  if (TORCHREEL_UNLIKELY(block == nullptr)) {
    Heap::get().empty_cache();
    block = take_block(bytes, now, stack);
    if (block == nullptr) out_of_memory(bytes, stack);
  }
  History::get().tell_events();
  c10::profiledCPUMemoryReporter().New(block->data(), bytes);
  return block->data();
}

void free_cached(void* address, uint32_t now) {
  c10::profiledCPUMemoryReporter().Delete(address);
  Heap& heap = Heap::get();
  Block* block = Block::of(address);
  if ((now & kHistory) == 0) return heap.free(block);
  uint32_t stack = History::get().stack_of_free();
  {
    std::lock_guard told(heap.gate);
    History::get().heap_free(*block, stack);
    heap.free(block);
  }
  History::get().tell_events();
}

// The deleter of every block. Torch frees some memory by the allocator that is current then, not by the one that made
// it: whatever is not of the heap goes to torch's own.
void free_block(void* address) {
  if (address == nullptr) return;
  if (TORCHREEL_UNLIKELY(placement != nullptr) && placement->give_back(address)) return;
  uint32_t now = taps.load(std::memory_order_relaxed);
  if (now & (kEvents | kModelEvents)) write_free(address);
  if (Heap::owns(address)) return free_cached(address, now);
  if (now & kHistory) {
    uint32_t stack = History::get().stack_of_free();
    {
      std::lock_guard told(Heap::get().gate);
      History::get().loose_free(address, stack);
    }
    History::get().tell_events();
  }
  inner_free(address);
}

// The deleter of a tensor at a place: it may outlive the placement, and is no block then.
void leave_place(void* address) {
  if (placement != nullptr) (void)placement->give_back(address);
}

class FrontAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (TORCHREEL_LIKELY(placement == nullptr)) return allocate_block(bytes);
    if (void* place = placement->take(bytes)) {
      return {place, place, &leave_place, c10::Device(c10::DeviceType::CPU)};
    }
    c10::DataPtr data = allocate_block(bytes);
    placement->made(data.get(), bytes);
    return data;
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* target, const void* source, std::size_t bytes) const override {
    default_copy_data(target, source, bytes);
  }

 private:
  static c10::DataPtr allocate_block(size_t bytes) {
    uint32_t now = taps.load(std::memory_order_relaxed);
    if (now & kCaching) {
      TORCH_CHECK(static_cast<ptrdiff_t>(bytes) >= 0, "A tensor cannot have ", bytes, " bytes.");
      void* address = bytes == 0 ? nullptr : allocate_cached(bytes, now);
      if (address != nullptr && tells_alloc(now)) write_alloc(address, bytes);
      return {address, address, &free_block, c10::Device(c10::DeviceType::CPU)};
    }
    c10::DataPtr data = pass_through(bytes, now);
    void* address = data.get();
    if (address != nullptr && now != 0) tell(address, bytes, now);
    (void)data.compare_exchange_deleter(inner_free, &free_block);
    return data;
  }

  static void tell(void* address, size_t bytes, uint32_t now) {
    if (now & kHistory) {
      uint32_t stack = History::get().stack_of_alloc();
      {
        std::lock_guard told(Heap::get().gate);
        History::get().loose_alloc(address, bytes, stack);
      }
      History::get().tell_events();
    }
    if (tells_alloc(now)) write_alloc(address, bytes);
  }

  static c10::DataPtr pass_through(size_t bytes, uint32_t now) {
    try {
      return inner->allocate(bytes);
    } catch (const c10::Error&) {
      Heap::get().count_oom();
      if (now & kHistory) {
        uint32_t stack = History::get().stack_of_alloc();
        {
          std::lock_guard told(Heap::get().gate);
          History::get().write(Action::kOom, available_bytes(), bytes, stack);
        }
        History::get().tell_events();
      }
      if (auto observer = oom_observer.load()) observer(bytes, Heap::get().allocated(), available_bytes());
      throw;
    }
  }
};

void before_fork() {
  Heap::get().prepare_fork();
  lock_private_pools();
  History::get().prepare_fork();
}
void after_fork_in_parent() {
  History::get().after_fork();
  unlock_private_pools();
  Heap::get().after_fork(false);
}
void after_fork_in_child() {
  History::get().after_fork();
  unlock_private_pools();
  Heap::get().after_fork(true);
}

void install_front() {
  static FrontAllocator allocator;
  inner = c10::GetCPUAllocator();
  inner_free = inner->raw_deleter();
  TORCH_CHECK(inner_free != nullptr,
              "Another allocator of CPU tensors is installed that cannot be put behind this one.");
  pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  // A priority above every allocator that ships with torch; the last of equals wins.
  c10::SetCPUAllocator(&allocator, 100);
  TORCH_CHECK(c10::GetCPUAllocator() == &allocator, "Another allocator of CPU tensors has a higher priority.");
}

// From whatever thread, with the GIL or without it.
void install() {
  static std::once_flag done;
  std::call_once(done, &install_front);
}

void set_tap(uint32_t tap, bool on) {
  if (on) install();
  on ? taps.fetch_or(tap) : taps.fetch_and(~tap);
}

}  // namespace

void watch_allocations(bool on) {
  set_tap(kEvents, on);
  if (!on) return;
  open_stream_of_events(kEvents);
  // Segments that are there already: as if they were made now.
  Heap::get().visit(
      [](Segment& segment) { write_alloc(segment.address + kHeader, segment.size, layout::kSegmentFlag); });
}

void watch_model_allocations(bool on) { set_tap(kModelEvents, on); }

void cache_allocations(bool on) {
  Heap::get().observe_segments(&tell_segment, [] { History::get().tell_events(); });
  set_tap(kCaching, on);
}

bool caches_allocations() { return taps.load() & kCaching; }

size_t empty_cache() {
  open_stream_of_events(taps.load(std::memory_order_relaxed));
  size_t bytes = Heap::get().empty_cache();
  History::get().tell_events();
  return bytes;
}

// A recording has a pool's blocks, not its range: it tells of segments by their beginnings, which do not move.
void change_private_pool(PoolChange change, uint64_t pool, uint64_t address, uint64_t bytes, void (*apply)(void*),
                         void* context) {
  uint32_t now = taps.load(std::memory_order_relaxed);
  if (TORCHREEL_LIKELY((now & (kEvents | kModelEvents | kHistory)) == 0)) {
    apply(context);
    return count_change(change, pool, bytes);
  }
  auto* data = reinterpret_cast<void*>(address);
  if (change == PoolChange::kFree && (now & (kEvents | kModelEvents))) write_free(data);
  if (now & kHistory) {
    History& history = History::get();
    bool comes = change == PoolChange::kMap || change == PoolChange::kAlloc;
    uint32_t stack = comes ? history.stack_of_alloc() : history.stack_of_free();
    {
      std::lock_guard told(Heap::get().gate);
      apply(context);
      count_change(change, pool, bytes);
      history.pool_event(kPoolActions[static_cast<int>(change)], address, bytes, stack, static_cast<uint32_t>(pool));
    }
    history.tell_events();
  } else {
    apply(context);
    count_change(change, pool, bytes);
  }
  if (change == PoolChange::kAlloc && tells_alloc(now)) write_alloc(data, bytes);
}

Placement* place_blocks(Placement* wanted) {
  install();
  return std::exchange(placement, wanted);
}

void keep_history(bool on) { set_tap(kHistory, on); }

void observe_out_of_memory(OutOfMemoryObserver observer) {
  install();
  oom_observer.store(observer);
}

bool adopt_storage(void* storage_impl) {
  auto* storage = static_cast<c10::StorageImpl*>(storage_impl);
  if (inner_free == nullptr || storage->device_type() != c10::DeviceType::CPU) return false;
  auto& data = storage->_mutable_data_ptr_no_checks();
  return data.get_deleter() == &free_block || data.compare_exchange_deleter(inner_free, &free_block);
}

}  // namespace torchreel
