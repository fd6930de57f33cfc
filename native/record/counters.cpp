#include "record/counters.h"

#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>

namespace torchreel {

namespace {

struct Event {
  uint32_t type;
  uint64_t config;
};

constexpr uint64_t cache_misses(uint64_t cache) {
  return cache | (PERF_COUNT_HW_CACHE_OP_READ << 8) | (PERF_COUNT_HW_CACHE_RESULT_MISS << 16);
}

const std::map<std::string, Event>& events() {
  static const std::map<std::string, Event> events = {
      {"cycles", {PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES}},
      {"instructions", {PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS}},
      {"cache-references", {PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_REFERENCES}},
      {"cache-misses", {PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES}},
      {"branches", {PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_INSTRUCTIONS}},
      {"branch-misses", {PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_MISSES}},
      {"l1d-misses", {PERF_TYPE_HW_CACHE, cache_misses(PERF_COUNT_HW_CACHE_L1D)}},
      {"llc-misses", {PERF_TYPE_HW_CACHE, cache_misses(PERF_COUNT_HW_CACHE_LL)}},
      {"dtlb-misses", {PERF_TYPE_HW_CACHE, cache_misses(PERF_COUNT_HW_CACHE_DTLB)}},
      {"page-faults", {PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS}},
      {"context-switches", {PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CONTEXT_SWITCHES}},
      {"cpu-migrations", {PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_MIGRATIONS}},
      {"task-clock", {PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK}},
  };
  return events;
}

int open_event(const Event& event, int group) {
  perf_event_attr attributes{};
  attributes.size = sizeof attributes;
  attributes.type = event.type;
  attributes.config = event.config;
  attributes.exclude_kernel = event.type != PERF_TYPE_SOFTWARE;
  attributes.exclude_hv = 1;
  attributes.disabled = group < 0;
  attributes.read_format = PERF_FORMAT_GROUP;
  return static_cast<int>(syscall(SYS_perf_event_open, &attributes, 0, -1, group, PERF_FLAG_FD_CLOEXEC));
}

}  // namespace

std::vector<std::string> counter_names() {
  std::vector<std::string> names;
  for (const auto& [name, event] : events()) names.push_back(name);
  return names;
}

std::string counter_problem(const std::string& name) {
  auto event = events().find(name);
  if (event == events().end()) return "there is no counter of this name";
  int file = open_event(event->second, -1);
  if (file >= 0) {
    close(file);
    return "";
  }
  if (errno == EACCES || errno == EPERM) {
    return "the kernel forbids it (lower /proc/sys/kernel/perf_event_paranoid, or run with CAP_PERFMON)";
  }
  if (errno == ENOENT || errno == EOPNOTSUPP || errno == ENODEV) {
    return "this processor or virtual machine does not offer it";
  }
  return strerror(errno);
}

CounterGroup::CounterGroup(const std::vector<std::string>& names) {
  for (const auto& name : names) {
    int group = files.empty() ? -1 : files[0];
    files.push_back(open_event(events().at(name), group));
  }
  // Enabled as a whole: a counter that joins a running group counts only after the thread's next switch.
  if (!files.empty() && files[0] >= 0) ioctl(files[0], PERF_EVENT_IOC_ENABLE, PERF_IOC_FLAG_GROUP);
}

CounterGroup::~CounterGroup() {
  for (int file : files) {
    if (file >= 0) close(file);
  }
}

uint64_t* put_counters(Stream* stream, uint64_t* at) {
  const auto& files = stream->counters->files;
  uint64_t values[1 + 16] = {};
  // A group that could not be opened on this thread reads as zeros: its calls show no growth.
  if (files[0] >= 0 && read(files[0], values, sizeof values) < 0) memset(values, 0, sizeof values);
  *at++ = layout::kCounters;
  for (size_t i = 0; i < files.size(); i++) *at++ = values[1 + i];
  return at;
}

}  // namespace torchreel
