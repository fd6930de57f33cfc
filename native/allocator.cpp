#include "allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/StorageImpl.h>

#include <atomic>

#include "frames.h"
#include "recording.h"
#include "stream.h"

namespace torchreel {

namespace {

std::atomic<bool> watching{false};
c10::Allocator* inner = nullptr;
c10::DeleterFnPtr inner_free = nullptr;

void write_alloc(void* address, size_t bytes) {
  Stream* stream = writable_stream();
  if (TORCHREEL_UNLIKELY(stream == nullptr)) return;
  uint64_t* at = begin_event(stream);
  if (stream->stacks != nullptr && stream->open_ops <= 0) at = put_stack(stream, at);
  at = put_head(stream, at, layout::kAlloc, 0);
  *at++ = reinterpret_cast<uint64_t>(address);
  *at++ = bytes;
  commit_event(stream, at);
}

void write_free(void* address) {
  Stream* stream = writable_stream();
  if (TORCHREEL_UNLIKELY(stream == nullptr)) return;
  uint64_t* at = begin_event(stream);
  at = put_head(stream, at, layout::kFree, 0);
  *at++ = reinterpret_cast<uint64_t>(address);
  commit_event(stream, at);
}

void free_and_tell(void* address) {
  if (address != nullptr && watching.load(std::memory_order_relaxed)) write_free(address);
  inner_free(address);
}

class WatchedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    c10::DataPtr data = inner->allocate(bytes);
    if (data.get() != nullptr && watching.load(std::memory_order_relaxed)) write_alloc(data.get(), bytes);
    (void)data.compare_exchange_deleter(inner_free, &free_and_tell);
    return data;
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_and_tell; }
  void copy_data(void* target, const void* source, std::size_t bytes) const override {
    default_copy_data(target, source, bytes);
  }
};

}  // namespace

void watch_allocations(bool on) {
  static WatchedAllocator allocator;
  if (on && inner == nullptr) {
    inner = c10::GetCPUAllocator();
    inner_free = inner->raw_deleter();
    // A priority above every allocator that ships with torch; the last of equals wins.
    c10::SetCPUAllocator(&allocator, 100);
  }
  watching.store(on, std::memory_order_relaxed);
}

bool adopt_storage(void* storage_impl) {
  auto* storage = static_cast<c10::StorageImpl*>(storage_impl);
  if (inner_free == nullptr || storage->device_type() != c10::DeviceType::CPU) return false;
  auto& data = storage->_mutable_data_ptr_no_checks();
  return data.get_deleter() == &free_and_tell || data.compare_exchange_deleter(inner_free, &free_and_tell);
}

}  // namespace torchreel
