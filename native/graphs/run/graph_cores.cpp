// How a graph comes to run on two cores: its own runs tell what its kernels cost, a schedule is made from that, memory
// is planned for the schedule, and the autotuner compares both.
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>

#include "graphs/run/graph.h"
#include "graphs/run/one_thread_trial.h"
#include "tape/capture/slots.h"
#include "torch/one_thread.h"

namespace torchreel::graphs {

namespace {

constexpr uint32_t kFixedMemory = UINT32_MAX;  // the space of memory that keeps its address
constexpr double kWorthIt = 0.85;              // at most this part of the time of one kernel after the other

// For a work: its own step on its lane, and the steps of the other lane that surely come before it.
struct Clock {
  int64_t first[2], last[2];
};

// By work: the clocks of a schedule.
std::vector<Clock> clocks(const Schedule& schedule, size_t works) {
  std::vector<Clock> all(works);
  int64_t now[2] = {0, 0};
  for (const auto& stretch : schedule.stretches) {
    if (!stretch.is_parallel()) {
      for (uint32_t work : stretch.order) {
        all[work] = {{now[0], now[1]}, {now[0], now[1]}};
        now[0]++;
        now[1]++;
      }
      continue;
    }
    for (int lane : {0, 1}) {
      int64_t mine = now[lane], seen = now[1 - lane];
      for (const auto& task : stretch.lanes[lane]) {
        seen = std::max(seen, now[1 - lane] + static_cast<int64_t>(task.wait));
        auto& clock = all[task.work];
        clock.first[lane] = clock.last[lane] = mine++;
        clock.first[1 - lane] = seen;
        clock.last[1 - lane] = -1;
      }
    }
    for (int lane : {0, 1}) now[lane] += static_cast<int64_t>(stretch.lanes[lane].size());
  }
  return all;
}

}  // namespace

void Graph::run_and_learn() {
  if (at::get_num_threads() < 2 || !OneThread::is_possible()) autotuner_.end();
  if (autotuner_.is_over() || (rival_ == nullptr && hits <= Autotuner::kWarmUp)) return run(sequence_);
  if (rival_ == nullptr && !autotuner_.has_costs()) return autotuner_.add_costs(timed_run());
  if (rival_ == nullptr && !make_rival()) {
    autotuner_.end();
    return run(sequence_);
  }
  auto candidate = autotuner_.next();
  rival_->two_cores = candidate == Autotuner::kTwoCores;
  auto start = std::chrono::steady_clock::now();
  run(candidate == Autotuner::kAsRecorded ? sequence_ : *rival_);
  autotuner_.add(candidate, std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count());
  if (autotuner_.is_decided()) settle(autotuner_.winner());
}

// False if nothing is to be gained.
bool Graph::make_rival() {
  auto plan = schedule(works(), Autotuner::forced ? Toll{0, 0, 0} : Toll{});
  if (!Autotuner::forced && plan.planned >= kWorthIt * plan.one_by_one) return false;
  try {
    rival_ = laid_out_for(plan);
  } catch (const std::exception&) {
    return false;  // there is no room for it
  }
  autotuner_.begin(rival_->beside() > 0 ? Autotuner::kTwoCores : Autotuner::kOneThread);
  memory_.writes = sequence_.writes;
  memory_.writes.insert(memory_.writes.end(), rival_->writes.begin(), rival_->writes.end());
  memory_.writes = merged(std::move(memory_.writes));
  return true;
}

void Graph::settle(Autotuner::Candidate winner) {
  if (winner != Autotuner::kAsRecorded) {
    std::swap(sequence_, *rival_);
    sequence_.two_cores = winner == Autotuner::kTwoCores;
  }
  running_ = &sequence_;
  rival_.reset();
  memory_.writes = sequence_.writes;
  autotuner_.end();
}

// Whether only this graph uses the memory, so that it may get another address.
bool Graph::is_inner(uint32_t storage) const {
  return memory_.lasts[storage] != kForever && memory_.ranges[storage].begin != memory_.ranges[storage].end;
}

// The end of the steps of a kernel.
size_t Graph::end_of(size_t kernel) const {
  return kernel + 1 < sequence_.steps.size() ? sequence_.steps[kernel + 1] : program_->end(part_);
}

std::vector<Access> Graph::accesses(size_t kernel) {
  std::vector<Access> all;
  for (size_t step = sequence_.steps[kernel]; step < end_of(kernel); step++) {
    for (const auto& [slot, writes] : program_->uses_of(step)) {
      const auto& record = program_->slot(slot);
      if (record.storage == tape::kNone || !memory_.storages[record.storage]) continue;  // a number
      uintptr_t base =
          is_inner(record.storage) ? 0 : reinterpret_cast<uintptr_t>(memory_.storages[record.storage].data());
      uintptr_t offset = static_cast<uintptr_t>(record.offset) * c10::elementSize(record.dtype);
      uint32_t space = is_inner(record.storage) ? record.storage : kFixedMemory;
      all.push_back({space, base + offset, base + record.extent, writes});
    }
  }
  return all;
}

std::vector<Work> Graph::works() {
  size_t count = sequence_.kernels.size();
  std::vector<std::vector<Access>> used;
  for (size_t i = 0; i < count; i++) used.push_back(accesses(i));
  auto after = dependences(used);
  std::vector<Work> all;
  for (size_t i = 0; i < count; i++) {
    size_t begin = sequence_.steps[i], end = end_of(i);
    const Kernel& kernel = *sequence_.kernels[i];
    OneThreadTrial found{Work::kAlone, autotuner_.costs()[i]};
    if (end - begin == 1) {
      found = one_thread_trial(call_of(program_->steps()[begin]), kernel, autotuner_.costs()[i]);
    } else {
      for (size_t step = begin; step < end; step++) {
        auto call = call_of(program_->steps()[step]);
        if (!is_plain_work(*call.op, kernel, call)) found.kind = Work::kFixed;
      }
    }
    all.push_back({found.kind, autotuner_.costs()[i], found.nanoseconds, std::move(after[i])});
  }
  return all;
}

// By storage: when the schedule uses inner memory. `lasts` gets the last uses, counted in steps of the schedule.
std::vector<Life> Graph::inner_lives(const Schedule& schedule, std::vector<int64_t>& lasts) const {
  auto when = clocks(schedule, sequence_.kernels.size());
  std::vector<Life> lives(program_->storages().size(), Life{{kForever, kForever}, {-1, -1}});
  int64_t position = 0;
  auto use = [&](uint32_t storage, const Clock& clock) {
    if (storage == tape::kNone || !is_inner(storage)) return;
    lasts[storage] = position;
    for (int lane : {0, 1}) {
      lives[storage].first[lane] = std::min(lives[storage].first[lane], clock.first[lane]);
      lives[storage].last[lane] = std::max(lives[storage].last[lane], clock.last[lane]);
    }
  };
  for (const auto& stretch : schedule.stretches) {
    for (uint32_t work : stretch.order) {
      for (size_t step = sequence_.steps[work]; step < end_of(work); step++, position++) {
        for (const auto& used : program_->uses_of(step)) use(program_->slot(used.slot).storage, when[work]);
      }
    }
  }
  return lives;
}

// Leaves memory that is not inner where it is, and returns it with all leases: inner memory must not overlap it.
std::vector<Obstacle> Graph::keep_outer(Sequence& made) const {
  std::vector<Obstacle> obstacles;
  for (const auto& range : pool_->leased()) obstacles.push_back({range, kForever});
  for (uint32_t storage = 0; storage < memory_.ranges.size(); storage++) {
    const auto& range = memory_.ranges[storage];
    if (range.begin == range.end || is_inner(storage)) continue;
    obstacles.push_back({range, kForever});
    auto overlaps = [&](const Range& other) { return other.overlaps(range); };
    if (std::any_of(sequence_.writes.begin(), sequence_.writes.end(), overlaps)) made.writes.push_back(range);
    made.bytes = std::max(made.bytes, range.end);
  }
  return obstacles;
}

// Plans inner memory anew: two storages may share memory only if all uses of one surely come before all uses of the
// other, on both lanes.
void Graph::place_inner(const Schedule& schedule, Sequence& made, std::vector<int64_t>& lasts) {
  auto lives = inner_lives(schedule, lasts);
  auto obstacles = keep_outer(made);
  std::vector<Need> needs;
  std::vector<uint32_t> storages;
  for (uint32_t storage = 0; storage < lives.size(); storage++) {
    if (!is_inner(storage)) continue;
    needs.push_back({program_->storages()[storage].extent, lives[storage]});
    storages.push_back(storage);
  }
  made.bytes = std::max(made.bytes, plan_memory(needs, obstacles, kForever));
  pool_->reach(made.bytes);
  for (size_t i = 0; i < needs.size(); i++) {
    made.writes.push_back({needs[i].offset, needs[i].offset + needs[i].bytes});
    memory_.storages[storages[i]] = storage_at(pool_->at(needs[i].offset), needs[i].bytes);
  }
  made.writes = merged(std::move(made.writes));
  for (uint32_t slot = 0; slot < tensors_.size(); slot++) {
    uint32_t storage = program_->slot(slot).storage;
    if (storage != tape::kNone && is_inner(storage)) tensors_[slot].reset();
  }
}

void Graph::add_stretch(const Stretch& stretch, Sequence& made, const std::vector<int64_t>& lasts, int64_t& position) {
  std::vector<BoundKernel> bound;
  std::vector<uint32_t> indices(sequence_.kernels.size());  // by work
  for (uint32_t work : stretch.order) {
    indices[work] = static_cast<uint32_t>(made.kernels.size() + bound.size());
    for (size_t step = sequence_.steps[work]; step < end_of(work); step++) {
      bound.push_back(bind(step, lasts));
      bound.back().step = position++;
    }
  }
  if (!stretch.is_parallel()) {
    fuse(bound);
    made.add(std::move(bound));
    made.pieces.push_back({made.kernels.size(), stretch.one_thread, nullptr});
    return;
  }
  made.add(std::move(bound));
  auto step_of = [&](const Task& task) {
    return Lanes::Step{made.kernels[indices[task.work]].get(), task.wait, indices[task.work]};
  };
  std::vector<Lanes::Step> lanes[2], order;
  for (int lane : {0, 1}) {
    for (const auto& task : stretch.lanes[lane]) lanes[lane].push_back(step_of(task));
  }
  for (uint32_t work : stretch.order) order.push_back(step_of({work, 0}));
  auto both = std::make_unique<Lanes>(std::move(lanes[0]), std::move(lanes[1]), std::move(order));
  made.pieces.push_back({made.kernels.size(), true, std::move(both)});
}

std::unique_ptr<Sequence> Graph::laid_out_for(const Schedule& schedule) {
  // Inner memory has its new addresses only while kernels are bound: the graph itself keeps the old ones.
  struct Before {
    Graph& graph;
    std::vector<c10::Storage> memory = graph.memory_.storages;
    std::vector<at::Tensor> tensors = graph.tensors_;
    ~Before() {
      graph.memory_.storages = std::move(memory);
      graph.tensors_ = std::move(tensors);
    }
  } before{*this};
  auto made = std::make_unique<Sequence>();
  std::vector<int64_t> lasts(program_->storages().size(), kForever);
  place_inner(schedule, *made, lasts);
  int64_t position = 0;
  for (const auto& stretch : schedule.stretches) add_stretch(stretch, *made, lasts, position);
  return made;
}

}  // namespace torchreel::graphs
