#include "memory/holders.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <mutex>
#include <vector>

#include "memory/heap.h"
#include "memory/history.h"

namespace torchreel {

namespace {

constexpr size_t kNamed = 5;

struct Holder {
  uint32_t stack = 0;
  size_t bytes = 0;
  size_t blocks = 0;
};

std::string bytes_text(size_t bytes) {
  const char* units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  double value = static_cast<double>(bytes);
  while (value >= 1024 && unit < 4) {
    value /= 1024;
    unit++;
  }
  char text[32];
  snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
  return text;
}

// Living blocks of the heap by the stack that made them, the largest first. Blocks without a stack stand alone.
std::vector<Holder> holders() {
  History& history = History::get();
  std::map<uint32_t, Holder> by_stack;
  std::vector<Holder> all;
  Heap::get().visit([&](Segment& segment) {
    for (Block* block = segment.first(); block != nullptr; block = block->next) {
      if (block->state != BlockState::kActive) continue;
      uint32_t stack = history.stack_of(*block);
      if (stack == 0) {
        all.push_back({0, block->requested, 1});
        continue;
      }
      auto& holder = by_stack[stack];
      holder.stack = stack;
      holder.bytes += block->requested;
      holder.blocks++;
    }
  });
  for (const auto& [stack, holder] : by_stack) all.push_back(holder);
  size_t named = std::min(kNamed, all.size());
  std::partial_sort(all.begin(), all.begin() + named, all.end(), [](auto& a, auto& b) { return a.bytes > b.bytes; });
  all.resize(named);
  return all;
}

bool is_library(const std::string& file) {
  return file.find("/site-packages/") != std::string::npos || file.find("/dist-packages/") != std::string::npos ||
         file.starts_with("<");
}

// The innermost line of the user's own; the innermost of all if there is none.
std::string line_of(uint32_t stack) {
  History& history = History::get();
  uint32_t python = 0;
  history.native_of(stack, python);
  const auto& stacks = history.stacks();
  auto frames = stacks.frames_of(python);
  if (frames.empty()) return "";
  auto own =
      std::find_if(frames.begin(), frames.end(), [&](uint32_t id) { return !is_library(stacks.frames[id].file); });
  const auto& frame = stacks.frames[own != frames.end() ? *own : frames.front()];
  return frame.file + ":" + std::to_string(frame.line) + " in " + frame.function;
}

}  // namespace

size_t available_bytes() {
  Heap& heap = Heap::get();
  if (size_t limit = heap.limit()) {
    size_t allocated = heap.allocated();
    return limit > allocated ? limit - allocated : 0;
  }
  return static_cast<size_t>(sysconf(_SC_AVPHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

std::string describe_out_of_memory(size_t bytes, size_t available) {
  Heap& heap = Heap::get();
  HeapStats stats = heap.stats();
  std::string text = "There is no memory for a CPU tensor of " + bytes_text(bytes) + ": ";
  text += bytes_text(stats.allocated) + " are allocated and " + bytes_text(stats.reserved) + " reserved";
  text += stats.limit != 0 ? " of the limit of " + bytes_text(stats.limit) + "."
                           : ", and the system gives no more (" + bytes_text(available) + " are free).";
  std::lock_guard told(heap.gate);
  bool lines = false;
  auto largest = holders();
  std::scoped_lock defined(History::get().frames().mutex(), History::get().text_mutex());
  if (!largest.empty()) text += " The largest holders:";
  for (const Holder& holder : largest) {
    std::string line = holder.stack != 0 ? line_of(holder.stack) : "";
    lines = lines || !line.empty();
    text += "\n  " + bytes_text(holder.bytes) + " in " + std::to_string(holder.blocks) +
            (holder.blocks == 1 ? " block" : " blocks") + (line.empty() ? "" : " from " + line);
  }
  if (!largest.empty()) text += "\n";
  text += lines || largest.empty() ? " " : " Call torchreel.memory.record_history() at the start to see their lines. ";
  text += stats.limit != 0 ? "Free some of them, or raise the limit with torchreel.memory.set_limit()."
                           : "Free some of them, or make the program smaller.";
  return text;
}

}  // namespace torchreel
