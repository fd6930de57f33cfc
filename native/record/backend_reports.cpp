#include "record/backend_reports.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <mutex>

#include "base/clock.h"
#include "record/models.h"
#include "torchreel/edge.h"

namespace torchreel {

// All profilers that take reports.
struct Desk {
  std::mutex mutex;
  std::vector<std::shared_ptr<BackendReports>> open;

  // Requires the lock. The one that this thread has to do with, else the only one, else null.
  BackendReports* receiver(const BackendReports* here) const;

  template <class Add>
  static int take(Add add);
};

namespace {

Desk* desk = new Desk;
thread_local std::weak_ptr<BackendReports> begun_here;

int64_t thread_id() { return static_cast<int64_t>(syscall(SYS_gettid)); }

}  // namespace

BackendReports* Desk::receiver(const BackendReports* here) const {
  auto begun = begun_here.lock();
  for (const BackendReports* wanted : {here, static_cast<const BackendReports*>(begun.get())}) {
    for (const auto& each : open) {
      if (each.get() == wanted) return each.get();
    }
  }
  return open.size() == 1 ? open.front().get() : nullptr;
}

template <class Add>
int Desk::take(Add add) {
  auto here = reports_of_call();
  std::lock_guard lock(desk->mutex);
  if (desk->open.empty()) return TORCHREEL_NO_PROFILER;
  BackendReports* receiver = desk->receiver(here.get());
  if (receiver == nullptr) return TORCHREEL_WHICH_PROFILER;
  add(receiver->events_, receiver->memory_);
  return TORCHREEL_TAKEN;
}

void BackendReports::begin() {
  std::lock_guard lock(desk->mutex);
  desk->open.push_back(shared_from_this());
  begun_here = weak_from_this();
}

void BackendReports::end() {
  std::lock_guard lock(desk->mutex);
  std::erase_if(desk->open, [&](const auto& each) { return each.get() == this; });
}

std::vector<ReportedEvent> BackendReports::events() {
  std::lock_guard lock(desk->mutex);
  return events_;
}

std::vector<ReportedMemory> BackendReports::memory() {
  std::lock_guard lock(desk->mutex);
  return memory_;
}

void forget_backend_reports() { desk = new Desk; }

int take_backend_event(int64_t start_us, int64_t end_us, int64_t debug_handle, const char* name, const char* backend) {
  ReportedEvent event{start_us,
                      end_us,
                      debug_handle,
                      name == nullptr ? "" : name,
                      backend == nullptr ? "" : backend,
                      static_cast<int64_t>(clock_ns(CLOCK_REALTIME)),
                      thread_id()};
  return Desk::take([&](auto& events, auto&) { events.push_back(std::move(event)); });
}

int take_backend_memory(const void* pointer, int64_t bytes, uint64_t allocated, uint64_t reserved, const char* device) {
  ReportedMemory event{reinterpret_cast<int64_t>(pointer),
                       bytes,
                       allocated,
                       reserved,
                       device == nullptr ? "" : device,
                       static_cast<int64_t>(clock_ns(CLOCK_REALTIME)),
                       thread_id()};
  return Desk::take([&](auto&, auto& memory) { memory.push_back(std::move(event)); });
}

}  // namespace torchreel
