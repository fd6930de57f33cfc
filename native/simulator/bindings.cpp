// The binding of the allocator's model, torchreel._simulator: it translates, and does nothing else. It needs no torch.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "simulator/recorded/run.h"
#include "simulator/request_trace.h"

namespace py = pybind11;
using namespace torchreel::simulator;

namespace {

template <class T>
using Column = py::array_t<T, py::array::c_style | py::array::forcecast>;

Rules to_rules(const py::dict& values) {
  Rules rules;
  rules.max_split = values["max_split"].cast<uint64_t>();
  rules.max_non_split_rounding = values["max_non_split_rounding"].cast<uint64_t>();
  rules.large_segment = values["large_segment"].cast<uint64_t>();
  rules.gc_threshold = values["gc_threshold"].cast<double>();
  rules.counts_ages = values["counts_ages"].cast<bool>();
  rules.roundup_divisions = values["roundup_divisions"].cast<std::array<uint64_t, 16>>();
  rules.expandable = values["expandable"].cast<bool>();
  rules.throw_on_oom = values["throw_on_oom"].cast<bool>();
  rules.releases_lock = values["releases_lock"].cast<bool>();
  rules.order = static_cast<TieOrder>(values["order"].cast<int>());
  rules.limit = values["limit"].cast<std::optional<uint64_t>>();
  rules.capacity = values["capacity"].cast<uint64_t>();
  rules.range_bytes = values["range_bytes"].cast<uint64_t>();
  rules.address_seed = values["address_seed"].cast<uint64_t>();
  return rules;
}

// Flags of the private pools by index.
void set_pools(Simulator& simulator, const py::dict& pools) {
  for (const auto& [index, flags] : pools) {
    PoolPair& pool = simulator.pool(index.cast<int>());
    for (const auto& flag : flags) {
      const auto name = flag.cast<std::string>();
      if (name == "no_split") pool.no_split = true;
      if (name == "use_on_oom") pool.use_on_oom = true;
      if (name == "capturing") pool.retries = false;
      if (name == "own_device") pool.own_device = true;
    }
  }
}

template <class T>
Column<T> to_column(const std::vector<T>& values) {
  return Column<T>(values.size(), values.data());
}

py::dict stats_of(Simulator& simulator) {
  py::dict stats;
  for (const auto& [name, value] : simulator.stats().named()) stats[name.c_str()] = value;
  return stats;
}

// The blocks that have memory behind them: one row each, with the segment that they lie in.
py::dict state_of(const Simulator& simulator) {
  std::vector<int64_t> base, address, size, requested, stream;
  std::vector<int32_t> pool;
  std::vector<int8_t> state, small, expandable;
  for (const auto& [unused, segment] : simulator.segments()) {
    uint64_t start = 0;
    for (const Block* block = segment->head; block != nullptr; block = block->next) {
      if (block->state == BlockState::kUnmapped) continue;
      // An expandable segment is shown as its runs of mapped memory.
      if (block->previous == nullptr || block->previous->state == BlockState::kUnmapped) start = block->address;
      base.push_back(static_cast<int64_t>(start));
      address.push_back(static_cast<int64_t>(block->address));
      size.push_back(static_cast<int64_t>(block->size));
      requested.push_back(block->is_free() ? 0 : static_cast<int64_t>(block->requested));
      stream.push_back(static_cast<int64_t>(block->stream));
      pool.push_back(block->pool->owner);
      state.push_back(static_cast<int8_t>(block->state));
      small.push_back(block->pool->small);
      expandable.push_back(segment->expandable());
    }
  }
  py::dict result;
  result["segment"] = to_column(base);
  result["address"] = to_column(address);
  result["size"] = to_column(size);
  result["requested"] = to_column(requested);
  result["stream"] = to_column(stream);
  result["pool"] = to_column(pool);
  result["state"] = to_column(state);
  result["small"] = to_column(small);
  result["expandable"] = to_column(expandable);
  return result;
}

py::dict trace_of(const std::vector<TraceEntry>& trace) {
  std::vector<int8_t> action;
  std::vector<int64_t> address, size, stream;
  std::vector<int32_t> pool;
  for (const TraceEntry& entry : trace) {
    action.push_back(static_cast<int8_t>(entry.action));
    address.push_back(static_cast<int64_t>(entry.address));
    size.push_back(static_cast<int64_t>(entry.size));
    stream.push_back(static_cast<int64_t>(entry.stream));
    pool.push_back(entry.pool);
  }
  py::dict result;
  result["action"] = to_column(action);
  result["address"] = to_column(address);
  result["size"] = to_column(size);
  result["stream"] = to_column(stream);
  result["pool"] = to_column(pool);
  return result;
}

py::dict run_request_trace(const py::dict& rules, const py::dict& pools, const Column<int8_t>& actions,
                           const Column<int64_t>& handles, const Column<int64_t>& sizes, const Column<int64_t>& streams,
                           const Column<int32_t>& pool_of, bool traces) {
  const auto count = static_cast<size_t>(actions.size());
  for (const py::array* column : {static_cast<const py::array*>(&handles), static_cast<const py::array*>(&sizes),
                                  static_cast<const py::array*>(&streams), static_cast<const py::array*>(&pool_of)}) {
    if (static_cast<size_t>(column->size()) != count) throw py::value_error("columns of different lengths");
  }
  RequestTraceRun simulated(to_rules(rules));
  set_pools(simulated.simulator(), pools);
  std::vector<TraceEntry> trace;
  if (traces) simulated.simulator().trace_into(&trace);
  {
    const RequestTrace events{actions.data(), handles.data(), sizes.data(), streams.data(), pool_of.data(), count};
    py::gil_scoped_release nogil;
    simulated.run(events);
  }
  py::dict result;
  result["stats"] = stats_of(simulated.simulator());
  result["allocated_at_peak"] = simulated.simulator().stats().allocated_at_peak;
  result["state"] = state_of(simulated.simulator());
  if (simulated.first_oom()) {
    result["first_oom"] =
        py::make_tuple(simulated.first_oom()->event, simulated.first_oom()->size, simulated.first_oom()->reserved);
  } else {
    result["first_oom"] = py::none();
  }
  if (traces) result["trace"] = trace_of(trace);
  return result;
}

using Matrix = Column<int64_t>;

std::vector<RecordedEvent> to_events(const Matrix& rows) {
  auto values = rows.unchecked<2>();
  std::vector<RecordedEvent> events(values.shape(0));
  for (py::ssize_t i = 0; i < values.shape(0); i++) {
    events[i] = {static_cast<Action>(values(i, 0)), static_cast<uint64_t>(values(i, 1)),
                 static_cast<uint64_t>(values(i, 2)), static_cast<uint64_t>(values(i, 3)),
                 static_cast<int>(values(i, 4))};
  }
  return events;
}

StartState to_start(const Matrix& segments, const Matrix& blocks, const Matrix& mapped, std::vector<int64_t> ranks) {
  StartState start;
  auto of_segments = segments.unchecked<2>();
  for (py::ssize_t i = 0; i < of_segments.shape(0); i++) {
    start.segments.push_back({static_cast<uint64_t>(of_segments(i, 0)), static_cast<uint64_t>(of_segments(i, 1)),
                              static_cast<uint64_t>(of_segments(i, 2)), static_cast<uint64_t>(of_segments(i, 3)),
                              static_cast<int>(of_segments(i, 4)), of_segments(i, 5) != 0});
  }
  auto of_blocks = blocks.unchecked<2>();
  for (py::ssize_t i = 0; i < of_blocks.shape(0); i++) {
    start.blocks.push_back({static_cast<uint64_t>(of_blocks(i, 0)), static_cast<uint64_t>(of_blocks(i, 1)),
                            static_cast<uint64_t>(of_blocks(i, 2)), static_cast<uint64_t>(of_blocks(i, 3)),
                            of_blocks(i, 4) != 0});
  }
  auto of_mapped = mapped.unchecked<2>();
  for (py::ssize_t i = 0; i < of_mapped.shape(0); i++) {
    start.mapped.push_back({static_cast<uint64_t>(of_mapped(i, 0)), static_cast<uint64_t>(of_mapped(i, 1))});
  }
  start.ranks = std::move(ranks);
  return start;
}

py::dict score_of(const Score& score) {
  py::dict result;
  result["matched"] = score.matched;
  result["total"] = score.total;
  result["extra"] = score.extra;
  return result;
}

py::dict run_recorded(const py::dict& rules, const py::dict& pools, const Matrix& events, const Matrix& segments,
                      const Matrix& blocks, const Matrix& mapped, std::vector<int64_t> ranks, bool learns) {
  const auto recorded = to_events(events);
  const auto start = to_start(segments, blocks, mapped, std::move(ranks));
  RecordedRun run(to_rules(rules), recorded, start, learns);
  set_pools(run.simulator(), pools);
  {
    py::gil_scoped_release nogil;
    run.run();
  }
  py::dict result;
  result["allocs"] = score_of(run.allocs());
  result["segment_events"] = score_of(run.segment_events());
  result["peak_reserved"] = run.simulator().stats().reserved_bytes.all.peak;
  result["old_counters"] = run.old_counters();
  result["ties"] = run.lessons().ties;
  result["slack"] = run.lessons().slack;
  result["range_bytes"] = run.lessons().range_bytes;
  result["state"] = state_of(run.simulator());
  result["mismatch"] = py::none();
  if (const auto& mismatch = run.mismatch()) {
    result["mismatch"] =
        py::make_tuple(mismatch->event, static_cast<int>(mismatch->recorded_action), mismatch->recorded_address,
                       mismatch->recorded_size, static_cast<int>(mismatch->simulated_action),
                       mismatch->simulated_address, mismatch->simulated_size);
  }
  return result;
}

}  // namespace

PYBIND11_MODULE(_simulator, module) {
  module.def("run_request_trace", &run_request_trace);
  module.def("run_recorded", &run_recorded);
}
