#include "memory_module.h"

#include <pybind11/stl.h>

#include <mutex>

#include "allocator.h"
#include "annotations.h"
#include "heap.h"
#include "history.h"
#include "snapshot.h"

namespace py = pybind11;

namespace torchreel {

namespace {

void start_history(bool events, int context, bool native_stacks, uint64_t max_entries, uint32_t skipped,
                   bool annotations, bool clear) {
  HistoryOptions options;
  options.events = events;
  options.context = static_cast<HistoryOptions::Context>(context);
  options.native_stacks = native_stacks;
  options.max_entries = max_entries;
  options.skipped = skipped;
  options.annotations = annotations;
  History::get().start(options, clear);
  keep_annotations(annotations);
  keep_history(true);
}

void stop_history() {
  keep_history(false);
  keep_annotations(false);
  History::get().stop();
}

py::dict pool_stats(const HeapStats::Pool& pool) {
  py::dict stats;
  stats["segments"] = pool.segments;
  stats["segment_allocs"] = pool.segment_allocs;
  stats["segment_frees"] = pool.segment_frees;
  stats["reserved"] = pool.reserved;
  stats["free_split"] = pool.free_split;
  stats["free_split_blocks"] = pool.free_split_blocks;
  stats["allocs"] = pool.allocs;
  stats["frees"] = pool.frees;
  stats["alloc_bytes"] = pool.alloc_bytes;
  stats["free_bytes"] = pool.free_bytes;
  stats["requested"] = pool.requested;
  stats["freed_requested"] = pool.freed_requested;
  return stats;
}

py::dict heap_stats() {
  HeapStats all = Heap::get().stats();
  py::dict stats;
  stats["small"] = pool_stats(all.small);
  stats["large"] = pool_stats(all.large);
  stats["allocated"] = all.allocated;
  stats["peak_allocated"] = all.peak_allocated;
  stats["peak_reserved"] = all.peak_reserved;
  stats["thread_cached"] = all.cached;
  stats["purged"] = all.purged;
  stats["purges"] = all.purges;
  stats["retries"] = all.retries;
  stats["ooms"] = all.ooms;
  stats["limit"] = all.limit;
  return stats;
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
  module.def("start_history", &start_history);
  module.def("stop_history", &stop_history);
  module.def("history_on", [] { return History::get().on(); });
  module.def("set_memory_metadata", [](const std::string& text) { History::get().set_metadata(text); });
  module.def("add_old_block", [](uint64_t address, uint64_t bytes) {
    std::lock_guard told(Heap::get().gate);
    if (!Heap::owns(reinterpret_cast<void*>(address))) History::get().add_loose(address, bytes);
  });
  module.def("snapshot_pickle", [](const std::string& version) { return py::bytes(snapshot_pickle(version)); });
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
  module.def("reset_peaks", [] { Heap::get().reset_peaks(); });
  static PlaceBlocks place = &place_blocks;
  module.attr("place_blocks") = py::capsule(&place, "torchreel.place_blocks");
  module.def("owns", [](uintptr_t address) { return Heap::owns(reinterpret_cast<void*>(address)); });
}

}  // namespace torchreel
