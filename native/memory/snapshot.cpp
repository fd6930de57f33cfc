#include "memory/snapshot.h"

#include <torch/csrc/profiler/unwind/unwind.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

#include "memory/front_allocator.h"
#include "memory/heap.h"
#include "memory/history.h"
#include "memory/pickle_writer.h"
#include "memory/private_pool_list.h"

namespace torchreel {

namespace {

struct BlockCopy {
  uint64_t address, size, requested;
  uint32_t stack;
  bool active;
};

struct SegmentCopy {
  uint64_t address, size;
  bool small;
  uint32_t stack;
  std::vector<BlockCopy> blocks;
  uint32_t pool = 0;
};

// All that a snapshot tells, copied while nothing can change.
struct Copy {
  std::vector<SegmentCopy> segments;
  std::vector<HistoryEntry> entries;
  uint64_t events = 0;  // of all that was kept, and that which was overwritten
  bool loose = false;
};

void copy_heap(Copy& copy) {
  History& history = History::get();
  Heap::get().visit([&](Segment& segment) {
    uint32_t made = segment.stack_from == history.generation() ? segment.stack : 0;
    SegmentCopy shown{reinterpret_cast<uint64_t>(segment.address) + kHeader, segment.size, segment.small, made, {}};
    for (Block* block = segment.first(); block != nullptr; block = block->next) {
      bool active = block->state.load(std::memory_order_relaxed) == BlockState::kActive;
      shown.blocks.push_back({reinterpret_cast<uint64_t>(block->data()), block->size,
                              active ? block->requested.load(std::memory_order_relaxed) : 0,
                              active ? history.stack_of(*block) : 0, active});
    }
    copy.segments.push_back(std::move(shown));
  });
}

void copy_loose(Copy& copy) {
  History::get().loose().visit([&](uintptr_t address, const LooseBlock& block) {
    bool small = block.size <= (1 << 20);
    copy.segments.push_back(
        {address, block.size, small, block.stack, {{address, block.size, block.size, block.stack, true}}});
    copy.loose = true;
  });
}

// A private pool as a segment that its blocks tile, with what is free between them.
SegmentCopy tiled(PrivatePool& pool) {
  auto& blocks = pool.blocks;
  std::sort(blocks.begin(), blocks.end(), [](auto& a, auto& b) { return a.address < b.address; });
  SegmentCopy shown{pool.address, pool.size, false, 0, {}, static_cast<uint32_t>(pool.id)};
  uint64_t at = pool.address, end = pool.address + pool.size;
  for (const auto& block : blocks) {
    uint64_t begin = std::max(block.address, at), stop = std::min(block.address + block.size, end);
    if (stop <= begin) continue;
    if (begin > at) shown.blocks.push_back({at, begin - at, 0, 0, false});
    uint32_t stack = History::get().stack_in_pool(block.address);
    shown.blocks.push_back({begin, stop - begin, stop - begin, stack, true});
    at = stop;
  }
  if (at < end) shown.blocks.push_back({at, end - at, 0, 0, false});
  return shown;
}

void copy_pools(Copy& copy) {
  for (auto& pool : list_private_pools()) {
    if (pool.size > 0) copy.segments.push_back(tiled(pool));
  }
}

uint64_t active_bytes(const Copy& copy) {
  uint64_t active = 0;
  for (const auto& segment : copy.segments) {
    for (const auto& block : segment.blocks) active += block.active ? block.size : 0;
  }
  return active;
}

Copy copy_state(const SnapshotParts& parts) {
  History& history = History::get();
  Copy copy;
  {
    std::lock_guard told(Heap::get().gate);
    copy_heap(copy);
    copy_loose(copy);
    copy_pools(copy);
    if (parts.traces) copy.entries = history.ring().entries();
    copy.events = history.ring().events();
    // As torch does: a dump is an event of its own, seen by the next one.
    if (history.on()) history.write(Action::kSnapshot, 0, active_bytes(copy), 0);
  }
  history.tell_events();
  std::erase_if(copy.segments, [&](const auto& segment) { return parts.pool && segment.pool != *parts.pool; });
  std::sort(copy.segments.begin(), copy.segments.end(), [](auto& a, auto& b) { return a.address < b.address; });
  return copy;
}

class SnapshotWriter {
 public:
  SnapshotWriter(const Copy& copy, const std::string& torch_version, const SnapshotParts& parts)
      : copy_(copy),
        parts_(parts),
        history_(History::get()),
        torch_version_(torch_version),
        now_(moment(CLOCK_REALTIME)) {}

  std::string write() {
    std::scoped_lock defined(history_.frames().mutex(), history_.text_mutex());
    symbolize();
    out_.open_dict();
    out_.literal("segments");
    write_segments();
    out_.literal("device_traces");
    out_.open_list();
    parts_.traces ? write_trace() : out_.empty_list();
    out_.close_list();
    out_.literal("allocator_settings");
    write_settings();
    out_.literal("external_annotations");
    parts_.traces ? write_annotations() : out_.empty_list();
    write_own_keys();
    out_.close_dict();
    return out_.finish();
  }

  // The frames of the only segment alone.
  std::string write_stack() {
    std::scoped_lock defined(history_.frames().mutex(), history_.text_mutex());
    symbolize();
    uint32_t stack = copy_.segments.front().stack;
    stack != 0 ? write_frames(stack) : out_.none();
    return out_.finish();
  }

 private:
  int64_t time_us(uint64_t tick) const {
    Moment began = history_.began();
    if (now_.tick <= began.tick) return static_cast<int64_t>(now_.ns / 1000);
    double part = static_cast<double>(tick - began.tick) / static_cast<double>(now_.tick - began.tick);
    return static_cast<int64_t>((static_cast<double>(now_.ns - began.ns) * part + static_cast<double>(began.ns)) /
                                1000);
  }

  // C++ frames get their names all at once, each program counter one time.
  void symbolize() {
    std::set<void*> counters;
    auto collect = [&](uint32_t stack) {
      uint32_t python = 0;
      if (const auto* found = history_.native_of(stack, python)) counters.insert(found->begin(), found->end());
    };
    for (const auto& entry : copy_.entries) collect(entry.stack);
    for (const auto& segment : copy_.segments) {
      collect(segment.stack);
      for (const auto& block : segment.blocks) collect(block.stack);
    }
    if (counters.empty()) return;
    std::vector<void*> all(counters.begin(), counters.end());
    std::vector<torch::unwind::Frame> frames;
    try {
      frames = torch::unwind::symbolize(all, torch::unwind::Mode::fast);
    } catch (const std::exception&) {
      frames = torch::unwind::symbolize(all, torch::unwind::Mode::dladdr);
    }
    for (size_t i = 0; i < all.size(); i++) native_frames_.emplace(all[i], std::move(frames[i]));
  }

  void write_frame(std::string_view file, int64_t line, std::string_view function) {
    out_.open_dict();
    out_.literal("filename");
    out_.text(file);
    out_.entry("line", line);
    out_.literal("name");
    out_.text(function);
    out_.close_dict();
  }

  void write_native_frame(void* counter) {
    auto [known, added] = native_memo_.emplace(counter, 0);
    if (!added) return out_.again(known->second);
    const auto& frame = native_frames_.at(counter);
    write_frame(frame.filename, static_cast<int64_t>(frame.lineno), frame.funcname);
    known->second = out_.memoize();
  }

  void write_python_frame(uint32_t id) {
    auto [known, added] = frame_memo_.emplace(id, 0);
    if (!added) return out_.again(known->second);
    const auto& frame = history_.stacks().frames[id];
    write_frame(frame.file, frame.line, frame.function);
    known->second = out_.memoize();
  }

  void write_frames(uint32_t stack) {
    auto [known, added] = stack_memo_.emplace(stack, 0);
    if (!added) return out_.again(known->second);
    out_.open_list();
    uint32_t python = 0;
    if (const auto* native = history_.native_of(stack, python)) {
      for (void* counter : *native) write_native_frame(counter);
    }
    for (uint32_t id : history_.stacks().frames_of(python)) write_python_frame(id);
    out_.close_list();
    known->second = out_.memoize();
  }

  void write_pool(uint32_t pool) {
    auto [known, added] = pool_memo_.emplace(pool, 0);
    if (!added) return out_.again(known->second);
    out_.pair(0, pool);
    known->second = out_.memoize();
  }

  void write_block(const BlockCopy& block) {
    out_.open_dict();
    out_.entry("address", static_cast<int64_t>(block.address));
    out_.entry("size", static_cast<int64_t>(block.size));
    out_.entry("requested_size", static_cast<int64_t>(block.requested));
    out_.entry("state", block.active ? "active_allocated" : "inactive");
    out_.literal("frames");
    write_frames(block.stack);
    out_.close_dict();
  }

  void write_segment(const SegmentCopy& segment) {
    uint64_t allocated = 0, requested = 0;
    for (const auto& block : segment.blocks) {
      allocated += block.active ? block.size : 0;
      requested += block.requested;
    }
    out_.open_dict();
    out_.entry("device", int64_t{0});
    out_.entry("address", static_cast<int64_t>(segment.address));
    out_.entry("total_size", static_cast<int64_t>(segment.size));
    out_.entry("allocated_size", static_cast<int64_t>(allocated));
    out_.entry("active_size", static_cast<int64_t>(allocated));
    out_.entry("requested_size", static_cast<int64_t>(requested));
    out_.entry("stream", int64_t{0});
    out_.entry("segment_type", segment.small ? "small" : "large");
    out_.literal("segment_pool_id");
    write_pool(segment.pool);
    out_.literal("is_expandable");
    out_.boolean(segment.pool != 0);
    out_.literal("frames");
    write_frames(segment.stack);
    out_.literal("blocks");
    out_.open_list();
    for (const auto& block : segment.blocks) write_block(block);
    out_.close_list();
    out_.close_dict();
  }

  void write_segments() {
    out_.open_list();
    for (const auto& segment : copy_.segments) write_segment(segment);
    out_.close_list();
  }

  void write_entry(const HistoryEntry& entry, Action action) {
    out_.open_dict();
    out_.entry("action", kActionNames[static_cast<int>(action)]);
    out_.entry(action == Action::kOom ? "device_free" : "addr", static_cast<int64_t>(entry.address));
    out_.entry("size", static_cast<int64_t>(entry.size));
    out_.entry("stream", int64_t{0});
    out_.entry("time_us", time_us(entry.tick));
    out_.literal("compile_context");
    entry.region != 0 ? write_text(entry.region) : out_.literal("N/A");
    out_.literal("user_metadata");
    write_text(entry.metadata);
    out_.literal("pool_id");
    write_pool(entry.pool);
    if (history_.options().context >= HistoryOptions::Context::kAlloc) {
      out_.literal("frames");
      write_frames(entry.stack);
    }
    if (entry.forward != 0 && action == Action::kAlloc) {
      out_.literal("forward_frames");
      write_forward(entry.forward);
    }
    out_.close_dict();
  }

  void write_text(uint32_t id) {
    auto [known, added] = text_memo_.emplace(id, 0);
    if (!added) return out_.again(known->second);
    out_.text(history_.texts()[id]);
    known->second = out_.memoize();
  }

  // The lines of a forward call, the outermost first, as Python's traceback has them.
  void write_forward(uint32_t forward) {
    auto [known, added] = forward_memo_.emplace(forward, 0);
    if (!added) return out_.again(known->second);
    out_.open_list();
    if (forward & kForwardText) {
      const std::string& lines = history_.texts()[forward & ~kForwardText];
      for (size_t at = 0; at < lines.size(); at = lines.find('\0', at) + 1) out_.text(lines.c_str() + at);
    } else {
      auto frames = history_.stacks().frames_of(forward);
      for (auto id = frames.rbegin(); id != frames.rend(); ++id) {
        const auto& frame = history_.stacks().frames[*id];
        out_.text("  File \"" + frame.file + "\", line " + std::to_string(frame.line) + ", in " + frame.function +
                  "\n");
      }
    }
    out_.close_list();
    known->second = out_.memoize();
  }

  // A free is one entry of ours and two of torch's; the ring's size counts torch's.
  void write_trace() {
    const auto& options = history_.options();
    std::vector<std::pair<const HistoryEntry*, Action>> shown;
    for (const auto& entry : copy_.entries) {
      if (options.keeps(entry.action)) shown.emplace_back(&entry, entry.action);
      if (entry.action == Action::kFreeRequested && options.keeps(Action::kFreeCompleted)) {
        shown.emplace_back(&entry, Action::kFreeCompleted);
      }
    }
    uint64_t most = options.events ? options.max_entries : 1;
    size_t first = shown.size() > most ? shown.size() - most : 0;
    lost_ = copy_.events - std::min<uint64_t>(copy_.events, shown.size() - first);
    out_.open_list();
    for (size_t i = first; i < shown.size(); i++) write_entry(*shown[i].first, shown[i].second);
    out_.close_list();
  }

  void write_annotations() {
    out_.open_list();
    const auto& all = history_.annotations();
    // A full ring begins where it will be written next.
    size_t turn = all.empty() ? 0 : history_.lost_annotations() % all.size();
    for (size_t i = 0; i < all.size(); i++) {
      const Annotation& annotation = all[(turn + i) % all.size()];
      out_.open_dict();
      out_.literal("name");
      write_text(annotation.name);
      out_.entry("stage", annotation.start ? "START" : "END");
      out_.entry("device", int64_t{0});
      out_.entry("time_us", time_us(annotation.tick));
      out_.close_dict();
    }
    out_.close_list();
  }

  void write_settings() {
    out_.open_dict();
    out_.entry("PYTORCH_CUDA_ALLOC_CONF", "");
    out_.entry("max_split_size", int64_t{-1});
    out_.literal("garbage_collection_threshold");
    out_.real(0);
    for (const char* name : {"expandable_segments", "release_lock_on_cudamalloc", "pinned_use_cuda_host_register",
                             "graph_capture_record_stream_reuse"}) {
      out_.literal(name);
      out_.boolean(false);
    }
    out_.entry("pinned_num_register_threads", int64_t{1});
    out_.entry("max_round_threshold", int64_t{-1});
    out_.entry("max_cached_size", int64_t{-1});
    out_.literal("roundup_power2_divisions");
    out_.open_dict();
    for (int megabytes = 1; megabytes <= 32768; megabytes *= 2) {
      out_.text(std::to_string(megabytes));
      out_.integer(0);
    }
    out_.close_dict();
    out_.entry("cpu_allocator", caches_allocations() ? "torchreel caching" : "system");
    out_.close_dict();
  }

  void write_own_keys() {
    auto total = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
    size_t limit = Heap::get().limit();
    auto one = [&](const char* key, auto write_value) {
      out_.literal(key);
      out_.open_list();
      write_value();
      out_.close_list();
    };
    out_.literal("torch_version");
    out_.text(torch_version_);
    one("devices", [&] { out_.literal("cpu"); });
    one("device_total_memory", [&] { out_.integer(total); });
    one("memory_fraction",
        [&] { out_.real(limit == 0 ? 1.0 : static_cast<double>(limit) / static_cast<double>(total)); });
    one("lost_events", [&] { parts_.traces ? out_.integer(static_cast<int64_t>(lost_)) : out_.none(); });
    one("notes", [&] {
      if (!history_.on() && !caches_allocations()) {
        return out_.text(
            "Of the system's allocator nothing is known without a history: call torchreel.memory.record_history() "
            "before.");
      }
      if (!copy_.loose) return out_.none();
      out_.text(
          caches_allocations()
              ? "Blocks that the system's allocator made, before the caching allocator was in use, are shown as a "
                "segment each."
              : "The system's allocator keeps no segments: each block is shown as a segment of its own.");
    });
  }

  const Copy& copy_;
  const SnapshotParts& parts_;
  History& history_;
  const std::string& torch_version_;
  Moment now_;
  PickleWriter out_;
  uint64_t lost_ = 0;
  std::unordered_map<void*, torch::unwind::Frame> native_frames_;
  std::unordered_map<void*, uint32_t> native_memo_;
  std::unordered_map<uint32_t, uint32_t> frame_memo_, stack_memo_, text_memo_, pool_memo_, forward_memo_;
};

}  // namespace

std::string snapshot_pickle(const std::string& torch_version, const SnapshotParts& parts) {
  Copy copy = copy_state(parts);
  return SnapshotWriter(copy, torch_version, parts).write();
}

namespace {

// Of the living block that begins at an address; 0 if none does. With the gate held.
uint32_t stack_at(uint64_t address) {
  History& history = History::get();
  LooseBlock loose;
  if (history.find_loose(address, loose)) return loose.stack;
  if (uint32_t stack = history.stack_in_pool(address)) return stack;
  uint32_t found = 0;
  if (!Heap::owns(reinterpret_cast<void*>(address))) return 0;
  Heap::get().visit([&](Segment& segment) {
    auto begin = reinterpret_cast<uint64_t>(segment.address);
    if (address < begin || address >= begin + segment.size) return;
    for (Block* block = segment.first(); block != nullptr; block = block->next) {
      bool here = reinterpret_cast<uint64_t>(block->data()) == address;
      if (here && block->state.load(std::memory_order_relaxed) == BlockState::kActive) found = history.stack_of(*block);
    }
  });
  return found;
}

}  // namespace

std::string traceback_pickle(uint64_t address) {
  Copy copy;
  {
    std::lock_guard told(Heap::get().gate);
    copy.segments.push_back({address, 0, false, stack_at(address), {}});
  }
  return SnapshotWriter(copy, "", {}).write_stack();
}

}  // namespace torchreel
