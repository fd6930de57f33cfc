// What backends in C and C++ report while a model is profiled, by src/torchreel/include/torchreel/edge.h.
// Nothing here requires the GIL.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace torchreel {

struct ReportedEvent {
  int64_t start_us;
  int64_t end_us;
  int64_t debug_handle;
  std::string name;
  std::string backend;
  int64_t told_ns;  // since the epoch
  int64_t os_thread;
};

struct ReportedMemory {
  int64_t address;
  int64_t bytes;
  uint64_t allocated;
  uint64_t reserved;
  std::string device;
  int64_t told_ns;
  int64_t os_thread;
};

// The reports to one profiler. One lock guards all of them.
class BackendReports : public std::enable_shared_from_this<BackendReports> {
 public:
  // From now on reports are taken: from this thread, from calls of the model, and from threads that nobody knows.
  void begin();
  // Reports that come later find no profiler. What was reported stays.
  void end();

  std::vector<ReportedEvent> events();
  std::vector<ReportedMemory> memory();

 private:
  friend struct Desk;
  std::vector<ReportedEvent> events_;
  std::vector<ReportedMemory> memory_;
};

// In a fork: the profiles are its parent's. A lock that another thread held there is never given back here.
void forget_backend_reports();

// What edge/entry.cpp calls: as edge.h has them.
int take_backend_event(int64_t start_us, int64_t end_us, int64_t debug_handle, const char* name, const char* backend);
int take_backend_memory(const void* pointer, int64_t bytes, uint64_t allocated, uint64_t reserved, const char* device);

}  // namespace torchreel
