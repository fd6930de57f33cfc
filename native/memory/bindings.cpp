#include "memory/bindings.h"

#include <pthread.h>
#include <pybind11/stl.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <thread>

#include "memory/annotations.h"
#include "memory/front_allocator.h"
#include "memory/heap.h"
#include "memory/history.h"
#include "memory/op_context.h"
#include "memory/private_pool_list.h"
#include "memory/snapshot.h"
#include "memory/tally.h"
#include "torch/script_stack.h"

namespace py = pybind11;

namespace torchreel {

namespace {

void start_history(bool events, int context, bool native_stacks, uint64_t max_entries, uint32_t skipped,
                   bool annotations, bool own_annotations, bool regions, bool forwards, bool clear) {
  HistoryOptions options;
  options.events = events;
  options.context = static_cast<HistoryOptions::Context>(context);
  options.native_stacks = native_stacks;
  options.max_entries = max_entries;
  options.skipped = skipped;
  options.annotations = annotations;
  options.own_annotations = own_annotations;
  read_scripts(ScriptReader::kHistory, true);
  History::get().start(options, clear);
  keep_annotations(annotations);
  watch_regions(regions);
  watch_forwards(forwards);
  keep_history(true);
}

void stop_history() {
  keep_history(false);
  keep_annotations(false);
  watch_regions(false);
  watch_forwards(false);
  History::get().stop();
  read_scripts(ScriptReader::kHistory, false);
}

py::dict pool_stats(const HeapStats::Pool& pool) {
  py::dict stats;
  stats["blocks"] = py::make_tuple(pool.allocs, pool.frees);
  stats["bytes"] = py::make_tuple(pool.alloc_bytes, pool.free_bytes);
  stats["requested"] = py::make_tuple(pool.requested, pool.freed_requested);
  return stats;
}

py::dict heap_stats() {
  HeapStats all = Heap::get().stats();
  py::dict stats;
  stats["small"] = pool_stats(all.small);
  stats["large"] = pool_stats(all.large);
  stats["segment_allocs"] = all.segment_allocs;
  stats["segment_frees"] = all.segment_frees;
  stats["thread_cached"] = all.cached;
  stats["purged"] = all.purged;
  stats["purges"] = all.purges;
  stats["retries"] = all.retries;
  stats["ooms"] = all.ooms;
  stats["limit"] = all.limit;
  return stats;
}

py::tuple stat_tuple(const Tally::Stat& stat) {
  return py::make_tuple(stat.current, stat.peak, stat.allocated, stat.freed);
}

py::list by_pool(const Tally::Stat* stats) {
  py::list pools;
  for (int pool = 0; pool < Tally::kPools; pool++) pools.append(stat_tuple(stats[pool]));
  return pools;
}

// By the kinds and pools of the tally, and what the heap counts by itself.
py::dict tally_stats() {
  static constexpr const char* kKinds[] = {"blocks", "bytes", "requested", "segments", "reserved"};
  static_assert(std::size(kKinds) == Tally::kKinds);
  py::dict stats;
  for (int kind = 0; kind < Tally::kKinds; kind++) {
    Tally::Stat pools[Tally::kPools];
    for (auto pool : {Tally::kSmall, Tally::kLarge, Tally::kAll}) {
      pools[pool] = Tally::get().read(static_cast<Tally::Kind>(kind), pool);
    }
    stats[kKinds[kind]] = by_pool(pools);
  }
  HeapStats heap = Heap::get().stats();
  stats["split_blocks"] = by_pool(heap.split_blocks);
  stats["split_bytes"] = by_pool(heap.split_bytes);
  return stats;
}

py::dict private_pool_stats() {
  py::dict stats;
  for (const auto& [pool, stat] : reserved_by_private_pools()) stats[py::int_(pool)] = stat_tuple(stat);
  return stats;
}

py::list private_blocks() {
  std::vector<PrivatePool> pools;
  {
    std::lock_guard told(Heap::get().gate);
    pools = list_private_pools();
  }
  py::list blocks;
  for (const auto& pool : pools) {
    for (const auto& block : pool.blocks) blocks.append(py::make_tuple(block.address, block.size));
  }
  return blocks;
}

// Never freed: events come until the process ends.
py::object* event_callback = nullptr;
std::atomic<int> telling{0};
__thread int telling_here __attribute__((tls_model("initial-exec"))) = 0;

// The end of the interpreter waits for those that are on their way into it (see silence_events).
void tell_event(Action action, uint64_t address, uint64_t size, uint32_t pool) {
  telling.fetch_add(1);
  telling_here++;
  if (History::get().observed() && Py_IsInitialized()) {
    py::gil_scoped_acquire gil;
    py::error_scope kept;  // an exception that is under way stays so
    try {
      if (event_callback != nullptr) {
        auto callback = *event_callback;  // it may remove itself
        callback(kActionNames[static_cast<int>(action)], address, size, pool);
      }
    } catch (py::error_already_set& error) {
      error.discard_as_unraisable("torchreel.memory.observe");
    }
  }
  telling_here--;
  telling.fetch_sub(1);
}

void observe_events(const py::object& callback) {
  if (event_callback == nullptr) {
    event_callback = new py::object();
    // Other threads are not in a forked child, and tell nobody there.
    pthread_atfork(nullptr, nullptr, [] { telling.store(telling_here); });
  }
  *event_callback = callback;
  History::get().observe(callback.is_none() ? nullptr : &tell_event);
}

// No thread is told of anything after this, nor waits for the GIL to be.
void silence_events() {
  History::get().observe(nullptr);
  py::gil_scoped_release nogil;
  while (telling.load() > 0) std::this_thread::yield();
}

// Never freed: an allocation may fail after the interpreter has gone.
py::object* oom_callback = nullptr;

void call_back(size_t asked, size_t allocated, size_t available) {
  if (!Py_IsInitialized()) return;
  py::gil_scoped_acquire gil;
  py::error_scope kept;  // an exception that is under way stays so
  try {
    if (oom_callback != nullptr) (*oom_callback)(asked, allocated, available);
  } catch (py::error_already_set& error) {
    error.discard_as_unraisable("torchreel.memory.on_out_of_memory");
  }
}

}  // namespace

void bind_memory(py::module_& module) {
  module.def("start_history", &start_history, py::arg("events"), py::arg("context"), py::arg("native_stacks"),
             py::arg("max_entries"), py::arg("skipped"), py::arg("annotations"), py::arg("own_annotations"),
             py::arg("regions"), py::arg("forwards"), py::arg("clear"));
  module.def("stop_history", &stop_history);
  module.def("history_on", [] { return History::get().on(); });
  module.def("set_memory_metadata", [](const std::string& text) { History::get().set_metadata(text); });
  module.def("add_old_block", [](uint64_t address, uint64_t bytes) {
    std::lock_guard told(Heap::get().gate);
    if (!Heap::owns(reinterpret_cast<void*>(address))) History::get().add_loose(address, bytes);
  });
  module.def("memory_metadata", [] { return History::get().metadata(); });
  module.def(
      "snapshot_pickle",
      [](const std::string& version, bool traces, std::optional<uint64_t> pool) {
        return py::bytes(snapshot_pickle(version, {traces, pool}));
      },
      py::arg("torch_version"), py::arg("traces") = true, py::arg("pool") = py::none());
  module.def("traceback_pickle", [](uint64_t address) { return py::bytes(traceback_pickle(address)); });
  module.def("observe_events", &observe_events);
  module.def("silence_events", &silence_events);
  module.def("untold_events", [] { return History::get().untold(); });
  module.def("on_out_of_memory", [](const py::object& callback) {
    if (oom_callback == nullptr) oom_callback = new py::object();
    *oom_callback = callback;
    observe_out_of_memory(&call_back);
  });
  module.def("cache_allocations", [](bool on, bool huge_pages, bool thread_caches, uint64_t decay_ms) {
    if (on) Heap::get().configure({huge_pages, thread_caches, decay_ms});
    cache_allocations(on);
  });
  module.def("caches_allocations", &caches_allocations);
  module.def("empty_cache", [] {
    py::gil_scoped_release nogil;
    return empty_cache();
  });
  module.def("set_limit", [](size_t bytes) { Heap::get().set_limit(bytes); });
  module.def("heap_stats", &heap_stats);
  module.def("tally_stats", &tally_stats);
  module.def("private_pool_stats", &private_pool_stats);
  module.def("private_blocks", &private_blocks);
  module.def("reset_peaks", [] {
    Tally::get().reset_peaks();
    Heap::get().reset_peaks();
    reset_private_peaks();
  });
  module.attr("private_pools") = py::capsule(&private_pools(), "torchreel.private_pools");
  static PlaceBlocks place = &place_blocks;
  module.attr("place_blocks") = py::capsule(&place, "torchreel.place_blocks");
  module.def("owns", [](uintptr_t address) { return Heap::owns(reinterpret_cast<void*>(address)); });
}

}  // namespace torchreel
