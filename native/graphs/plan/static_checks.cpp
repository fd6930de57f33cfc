#include "graphs/plan/static_checks.h"

#include <algorithm>

#include "tape/capture/slots.h"
#include "tape/steps/collectives.h"

namespace torchreel::graphs {

using tape::Given;
using tape::kNone;
using tape::Step;

void refuse(const Step& step, const std::string& why) {
  NotStatic error(why);
  error.op = step.index;
  throw error;
}

namespace {

constexpr std::string_view kWait = "_c10d_functional::wait_tensor";

void check_collective(const StaticProgram& program, const Step& step) {
  const auto& name = step.op->name;
  if (tape::is_between_two(name)) refuse(step, name + " waits for one other rank");
  if (tape::is_finished_by_waiting(name)) refuse(step, name + " does a part of its work when it is waited for");
  if (name != kWait) return;
  const auto& slots = step.given[0].slots;
  auto kind = slots.empty() ? StorageInfo::kMade : program.storage_of(slots[0]).kind;
  if (kind != StorageInfo::kMade) refuse(step, "it waits for a collective that began before it was called");
}

void check_reshape(const StaticProgram& program, const Step& step) {
  const auto& name = step.op->name;
  bool only_metadata = changes_only_metadata(step);
  if (step.op->reshapes && !only_metadata) {
    refuse(step, name + " changes the shape or the memory of a tensor in place");
  }
  if (only_metadata && name != "aten::detach_" &&
      program.storage_of(step.given[0].slots[0]).kind != StorageInfo::kMade) {
    refuse(step, name + " changes the shape of a tensor of others in place");
  }
  if (name.starts_with("aten::as_strided_")) refuse(step, name + " looks at memory around a tensor");
}

void check_unplanned_step(const StaticProgram& program, const Step& step) {
  const auto& name = step.op->name;
  if (tape::is_collective(name)) refuse(step, name + " has a tensor without fixed memory");
  bool computed = step.keeps_number;
  for (const auto& given : step.given) computed = computed || given.kind >= Given::kFormula;
  if (computed) refuse(step, name + " has a number that Python computes with, and a tensor without fixed memory");
  for_each_slot(step, [&](uint32_t slot, bool writes) {
    if (writes && program.slot(slot).unplanned && program.storage_of(slot).kind != StorageInfo::kMade) {
      refuse(step, name + " writes to a tensor of others that is sparse, quantized or on another device");
    }
  });
}

// Marks the storages that may share memory with an unplanned tensor of this step: what such a tensor is made of, and
// views of it.
void mark_shared(const StaticProgram& program, const Step& step, std::vector<bool>& shared) {
  auto mark = [&](uint32_t slot) {
    if (slot != kNone && !program.slot(slot).unplanned) shared[program.slot(slot).storage] = true;
  };
  bool gives = false;
  for (const auto& gave : step.gave) {
    for (uint32_t slot : gave.slots) gives = gives || (slot != kNone && program.slot(slot).unplanned);
  }
  for (size_t i = 0; gives && i < step.given.size(); i++) {
    if (writes(step, i)) continue;
    for (uint32_t slot : step.given[i].slots) mark(slot);
  }
  if (!step.op->view) return;
  for (const auto& gave : step.gave) {
    for (uint32_t slot : gave.slots) mark(slot);
  }
}

// The steps of a segment.
struct Steps {
  int64_t begin, end;
  bool contain(int64_t step) const { return step >= begin && step < end; }
};

}  // namespace

void check_steps(const StaticProgram& program) {
  for (const auto& step : program.steps()) {
    if (step.region.has_value()) refuse(step, "it calls a region that torch.compile compiled");
    check_collective(program, step);
    check_reshape(program, step);
    for (const auto& given : step.given) {
      if (given.kind == Given::kStorage) refuse(step, step.op->name + " takes the storage of a tensor");
    }
    if (program.is_unplanned(step)) check_unplanned_step(program, step);
  }
}

// Planned memory that an unplanned tensor shares in eager is a copy here: a write would not reach the other tensor.
void check_unplanned(const StaticProgram& program) {
  std::vector<bool> shared(program.storages().size(), false);
  for (const auto& step : program.steps()) {
    for_each_slot(step, [&](uint32_t slot, bool writes) {
      if (writes && shared[program.slot(slot).storage]) {
        refuse(step, step.op->name + " writes to memory that a sparse, quantized or nested tensor may share");
      }
    });
    if (program.is_unplanned(step)) mark_shared(program, step, shared);
  }
}

// Only the memory that the input itself covers is copied.
void check_inputs(const StaticProgram& program) {
  const auto& storages = program.storages();
  std::vector<size_t> lowest(storages.size(), SIZE_MAX), extent(storages.size(), 0);
  auto note = [&](const std::vector<uint32_t>& slots) {
    for (uint32_t slot : slots) {
      if (slot == kNone) continue;
      const auto& record = program.slot(slot);
      auto begin = static_cast<size_t>(record.offset) * c10::elementSize(record.dtype);
      lowest[record.storage] = std::min(lowest[record.storage], begin);
      extent[record.storage] = std::max(extent[record.storage], record.extent);
    }
  };
  note(program.recorded().inputs);
  for (const auto& segment : program.recorded().segments) note(segment.gradients);
  for (uint32_t storage = 0; storage < storages.size(); storage++) {
    const auto& info = storages[storage];
    if (info.kind != StorageInfo::kInput && info.kind != StorageInfo::kGradient) continue;
    if (info.lowest < lowest[storage] || info.extent > extent[storage]) {
      throw NotStatic("it looks at memory around an input (as_strided)");
    }
  }
}

void check_segments(const StaticProgram& program) {
  auto refuse_shared = [] { throw NotStatic("parts of its backward that can run by themselves share memory"); };
  const auto& segments = program.recorded().segments;
  auto backward = static_cast<int64_t>(program.boundaries()[0]);
  for (size_t i = 0; segments.size() > 1 && i < segments.size(); i++) {
    Part part = Part::backward(i);
    Steps steps{static_cast<int64_t>(program.begin(part)), static_cast<int64_t>(program.end(part))};
    for (const auto& info : program.storages()) {
      bool made = info.kind == StorageInfo::kMade || info.kind == StorageInfo::kGradient;
      if (made && steps.contain(info.first) && info.last >= steps.end) refuse_shared();
    }
    for (uint32_t slot : segments[i].derivatives) {
      if (slot == kNone) continue;
      const auto& info = program.storage_of(slot);
      bool elsewhere = info.first >= backward && !steps.contain(info.first);
      if (info.kind == StorageInfo::kMade && elsewhere) refuse_shared();
    }
  }
}

}  // namespace torchreel::graphs
