// What torchreel/edge.h looks for: a library that needs nothing but libc, so that its names can be made known to all
// of the process without making torch's known, too. _core says what is called.
#include "torchreel/edge.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {
torchreel_backend_event event = nullptr;
torchreel_backend_memory_event memory_event = nullptr;
}  // namespace

EXPORTED int torchreel_record_backend_event(int64_t start_us, int64_t end_us, int64_t debug_handle,
                                            const char* event_name, const char* backend_name) {
  auto record = __atomic_load_n(&event, __ATOMIC_ACQUIRE);
  return record == nullptr ? static_cast<int>(TORCHREEL_NO_PROFILER)
                           : record(start_us, end_us, debug_handle, event_name, backend_name);
}

EXPORTED int torchreel_record_backend_memory_event(const void* ptr, int64_t alloc_size, uint64_t total_allocated,
                                                   uint64_t total_reserved, const char* device) {
  auto record = __atomic_load_n(&memory_event, __ATOMIC_ACQUIRE);
  return record == nullptr ? static_cast<int>(TORCHREEL_NO_PROFILER)
                           : record(ptr, alloc_size, total_allocated, total_reserved, device);
}

EXPORTED void torchreel_set_backend_events(torchreel_backend_event record,
                                           torchreel_backend_memory_event record_memory) {
  __atomic_store_n(&event, record, __ATOMIC_RELEASE);
  __atomic_store_n(&memory_event, record_memory, __ATOMIC_RELEASE);
}
