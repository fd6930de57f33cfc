#include "graphs/plan/static_program.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <unordered_set>

#include "graphs/plan/elide.h"
#include "graphs/plan/static_checks.h"
#include "tape/capture/slots.h"
#include "tape/steps/collectives.h"
#include "torch/below_autograd.h"

namespace torchreel::graphs {

using tape::Gave;
using tape::Given;
using tape::kNone;
using tape::Step;

// The schema of native_batch_norm does not say that it writes the running mean and variance.
bool writes(const Step& step, size_t argument) {
  if (step.op->written[argument]) return true;
  return (argument == 3 || argument == 4) && step.op->name == "aten::native_batch_norm";
}

namespace {

// Larger constants are computed at each run, so that others can use their memory in between.
constexpr size_t kLargestConstant = 64 * 1024;

// It returns a tensor that waits when it is read. Collectives of a graph have ended by then.
constexpr std::string_view kWrap = "_c10d_functional::_wrap_tensor_autograd";

}  // namespace

bool changes_only_metadata(const Step& step) {
  static const std::unordered_set<std::string> known = {"aten::detach_",      "aten::t_",       "aten::transpose_",
                                                        "aten::unsqueeze_",   "aten::squeeze_", "aten::squeeze_.dim",
                                                        "aten::squeeze_.dims"};
  return known.count(step.op->name) != 0;
}

void set_bits(const at::Tensor& tensor, const tape::PlanSlot& slot) {
  if (slot.conjugate) tensor._set_conj(true);
  if (slot.negative) tensor._set_neg(true);
}

at::Tensor tensor_on(const c10::Storage& storage, const tape::PlanSlot& slot) {
  c10::InferenceMode plain(true);  // a tensor that is made now has the key of its backend alone
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), c10::scalarTypeToTypeMeta(slot.dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(slot.sizes, slot.strides, slot.offset);
  set_bits(tensor, slot);
  return tensor;
}

std::vector<SlotUse> StaticProgram::uses_of(size_t step) const {
  std::vector<SlotUse> all;
  for_each_slot(all_.steps[step], [&](uint32_t slot, bool writes) { all.push_back({slot, writes}); });
  for (const auto& gave : all_.steps[step].gave) {
    for (uint32_t slot : gave.slots) {
      if (slot != kNone) all.push_back({slot, true});
    }
  }
  return all;
}

std::vector<uint32_t> StaticProgram::step_ops() const {
  std::vector<uint32_t> ops;
  for (const auto& step : all_.steps) ops.push_back(step.index);
  return ops;
}

StaticProgram::StaticProgram(Recorded recorded) : all_(std::move(recorded)) {
  for (const auto& step : all_.steps) ops_ = std::max<size_t>(ops_, step.index + 1);
  find_kinds();
  mark_handed_out();
  check_steps(*this);
  check_unplanned(*this);
  leave_out();
  if (all_.elides) elide_copies(all_, storages_, boundaries_);
  find_lives();
  find_extents();
  check_inputs(*this);
  if (has_backward()) {
    check_segments(*this);
    find_saved();
  }
  find_guards();
  find_writes();
}

void StaticProgram::find_kinds() {
  uint32_t count = 0;
  for (const auto& slot : all_.slots) count = std::max(count, slot.storage == kNone ? 0 : slot.storage + 1);
  storages_.resize(count);
  for (uint32_t slot = 0; slot < all_.slots.size(); slot++) {
    const auto& record = all_.slots[slot];
    if (record.storage != kNone && record.unplanned) storages_[record.storage].unplanned = true;
    if (!all_.tensors[slot].defined()) continue;
    auto& info = storages_[record.storage];
    info.kind = StorageInfo::kExternal;
    if (!record.unplanned) info.memory = all_.tensors[slot].storage();
  }
  for (uint32_t slot : all_.inputs) {
    auto& info = storages_[all_.slots[slot].storage];
    if (info.kind == StorageInfo::kMade) info.kind = StorageInfo::kInput;
  }
  for (const auto& segment : all_.segments) {
    for (uint32_t slot : segment.gradients) {
      if (slot != kNone) storages_[all_.slots[slot].storage].kind = StorageInfo::kGradient;
    }
  }
}

void StaticProgram::mark_handed_out() {
  auto hand_out = [&](uint32_t slot) {
    if (slot != kNone) storages_[all_.slots[slot].storage].handed_out = true;
  };
  for (uint32_t slot : all_.outputs) hand_out(slot);
  for (const auto& segment : all_.segments) {
    for (uint32_t slot : segment.derivatives) hand_out(slot);
  }
  for (const auto& binding : all_.bindings) {
    if (binding.kind == tape::Binding::kData) {
      throw NotStatic("it gives a tensor other data (`p.data = ...`) at each call");
    }
    hand_out(binding.value);
  }
}

bool StaticProgram::is_unplanned(const Step& step) const {
  bool any = false;
  for_each_slot(step, [&](uint32_t slot, bool) { any = any || all_.slots[slot].unplanned; });
  return any;
}

// Whether all that it gives is what it was given, seen differently.
bool StaticProgram::is_alias(const Step& step) const {
  bool any = false;
  for (size_t i = 0; i < step.given.size(); i++) {
    if (writes(step, i) && !step.given[i].slots.empty()) return false;
  }
  for (const auto& gave : step.gave) {
    if (gave.kind != Gave::kSlot && gave.kind != Gave::kSlots) return false;
    for (uint32_t slot : gave.slots) {
      if (slot == kNone) return false;
      bool found = false;
      for (const auto& given : step.given) {
        for (uint32_t other : given.slots) {
          if (other == kNone || all_.slots[other].storage != all_.slots[slot].storage) continue;
          if (all_.slots[other].dtype != all_.slots[slot].dtype && !step.op->view) return false;
          found = true;
        }
      }
      if (!found) return false;
      any = true;
    }
  }
  return any;
}

bool StaticProgram::has_constant_arguments(const Step& step) const {
  for (size_t i = 0; i < step.given.size(); i++) {
    const auto& given = step.given[i];
    if (given.kind >= Given::kStorage || (writes(step, i) && !given.slots.empty())) return false;
    for (uint32_t slot : given.slots) {
      if (slot != kNone && storage_of(slot).kind != StorageInfo::kConstant) return false;
    }
  }
  return true;
}

bool StaticProgram::is_foldable(const Step& step, const std::vector<bool>& written) const {
  const auto& op = *step.op;
  if (op.random || op.unset || op.silent || op.varying || step.gave.empty() || is_unplanned(step)) return false;
  if (tape::is_collective(op.name) || !has_constant_arguments(step)) return false;
  for (const auto& gave : step.gave) {
    if (gave.kind != Gave::kSlot && gave.kind != Gave::kSlots) return false;
    for (uint32_t slot : gave.slots) {
      if (slot == kNone) return false;
      const auto& info = storage_of(slot);
      if (info.kind != StorageInfo::kMade || info.handed_out || written[all_.slots[slot].storage]) return false;
      if (all_.slots[slot].extent > kLargestConstant) return false;
    }
  }
  return true;
}

// Runs it now: its results are constants.
void StaticProgram::fold(const Step& step) {
  BelowAutograd below_autograd;
  torch::jit::Stack stack;
  auto constant = [&](uint32_t slot) {
    if (slot == kNone) return at::Tensor();
    return all_.tensors[slot].defined() ? all_.tensors[slot] : tensor_on(storage_of(slot).memory, all_.slots[slot]);
  };
  for (const auto& given : step.given) {
    if (given.kind == Given::kSlot) {
      stack.emplace_back(constant(given.slots[0]));
    } else if (given.kind == Given::kSlots) {
      c10::List<at::Tensor> list;
      for (uint32_t slot : given.slots) list.push_back(constant(slot));
      stack.emplace_back(std::move(list));
    } else if (given.kind == Given::kOptionalSlots) {
      c10::List<std::optional<at::Tensor>> list;
      for (uint32_t slot : given.slots) {
        list.push_back(slot == kNone ? std::nullopt : std::optional<at::Tensor>(constant(slot)));
      }
      stack.emplace_back(std::move(list));
    } else {
      stack.push_back(given.constant);
    }
  }
  step.op->handle.callBoxed(&stack);
  for (size_t i = 0; i < step.gave.size(); i++) {
    const auto& slots = step.gave[i].slots;
    std::vector<at::Tensor> made;
    if (step.gave[i].kind == Gave::kSlot) {
      made = {stack[i].toTensor()};
    } else {
      made = stack[i].toTensorVector();
    }
    for (size_t j = 0; j < slots.size() && j < made.size(); j++) {
      auto& info = storages_[all_.slots[slots[j]].storage];
      info.kind = StorageInfo::kConstant;
      info.memory = made[j].storage();
    }
  }
}

std::vector<bool> StaticProgram::find_written_storages() const {
  std::vector<bool> written(storages_.size(), false);
  for (const auto& step : all_.steps) {
    for_each_slot(step, [&](uint32_t slot, bool writes) {
      if (writes) written[all_.slots[slot].storage] = true;
    });
  }
  return written;
}

// Numbers that torch wrapped as tensors, and that nothing writes.
void StaticProgram::mark_constants(const std::vector<bool>& written) {
  for (uint32_t slot = 0; slot < all_.slots.size(); slot++) {
    const auto& record = all_.slots[slot];
    const auto& tensor = all_.tensors[slot];
    if (!tensor.defined() || record.unplanned || written[record.storage]) continue;
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) storages_[record.storage].kind = StorageInfo::kConstant;
  }
}

// Whether a step need not run: ranges of the profiler, views, and ops that only allocate.
bool StaticProgram::is_needless(const Step& step) const {
  if (step.op->silent || changes_only_metadata(step) || step.op->name == kWrap || is_alias(step)) return true;
  return step.op->unset && !step.gave.empty() && !is_unplanned(step);
}

// Drops needless steps, and computes constants now.
void StaticProgram::leave_out() {
  auto written = find_written_storages();
  mark_constants(written);
  std::vector<Step> steps;
  std::vector<size_t> wanted = {all_.boundary};
  for (size_t i = 1; i < all_.segments.size(); i++) wanted.push_back(all_.segments[i].boundary);
  for (auto& step : all_.steps) {
    while (boundaries_.size() < wanted.size() && step.index >= wanted[boundaries_.size()]) {
      boundaries_.push_back(steps.size());
    }
    if (is_needless(step)) continue;
    if (is_foldable(step, written)) {
      fold(step);
    } else {
      steps.push_back(std::move(step));
    }
  }
  all_.steps = std::move(steps);
  boundaries_.resize(wanted.size(), all_.steps.size());
}

size_t StaticProgram::end(Part part) const {
  size_t next = part.is_forward() ? 0 : part.segment() + 1;
  return next < boundaries_.size() ? boundaries_[next] : all_.steps.size();
}

bool StaticProgram::has_backward() const {
  return std::any_of(all_.segments.begin(), all_.segments.end(),
                     [](const Segment& segment) { return !segment.derivatives.empty(); });
}

std::vector<uint32_t> StaticProgram::saved_for(size_t segment) const {
  if (all_.segments.size() < 2) return saved_;
  std::vector<bool> used(storages_.size(), false);
  Part part = Part::backward(segment);
  for (size_t i = begin(part); i < end(part); i++) {
    for_each_slot(all_.steps[i], [&](uint32_t slot, bool) { used[all_.slots[slot].storage] = true; });
  }
  for (uint32_t slot : all_.segments[segment].derivatives) {
    if (slot != kNone) used[all_.slots[slot].storage] = true;
  }
  std::vector<uint32_t> found;
  std::copy_if(saved_.begin(), saved_.end(), std::back_inserter(found),
               [&](uint32_t storage) { return used[storage]; });
  return found;
}

void StaticProgram::find_lives() {
  for (size_t i = 0; i < all_.steps.size(); i++) {
    for_each_slot(all_.steps[i], [&](uint32_t slot, bool writes) {
      auto& info = storages_[all_.slots[slot].storage];
      if (info.first < 0) info.first = static_cast<int64_t>(i);
      info.last = static_cast<int64_t>(i);
      info.written = info.written || writes;
    });
  }
}

void StaticProgram::find_extents() {
  for (const auto& record : all_.slots) {
    if (record.unplanned) continue;
    auto& info = storages_[record.storage];
    info.extent = std::max(info.extent, record.extent);
    info.lowest = std::min(info.lowest, static_cast<size_t>(record.offset) * c10::elementSize(record.dtype));
  }
}

void StaticProgram::find_saved() {
  int64_t boundary = static_cast<int64_t>(boundaries_[0]);
  for (uint32_t storage = 0; storage < storages_.size(); storage++) {
    const auto& info = storages_[storage];
    bool ours = info.kind == StorageInfo::kMade || info.kind == StorageInfo::kInput;
    bool before = info.kind == StorageInfo::kInput || info.first < boundary;
    if (!ours || !before || info.last < boundary) continue;
    if (info.unplanned) {
      throw NotStatic("it keeps a tensor that is sparse, quantized or on another device for its backward");
    }
    saved_.push_back(storage);
  }
}

void StaticProgram::find_guards() {
  for (size_t i = 0; i < all_.steps.size(); i++) {
    const auto& step = all_.steps[i];
    bool guards = step.op->varying || is_unplanned(step);
    for (const auto& gave : step.gave) guards = guards || (gave.kind == Gave::kNumber && step.guarded);
    if (guards) last_guard_ = static_cast<int64_t>(i);
  }
  for (int64_t i = 0; i < static_cast<int64_t>(all_.steps.size()); i++) {
    const auto& step = all_.steps[i];
    if (i < last_guard_ && tape::is_collective(step.op->name)) {
      // If the guard failed, this rank would run it again, and the others would not.
      refuse(step, "Python uses a number that is known after " + step.op->name + ", in which other ranks take part");
    }
    if (step.op->random && i < static_cast<int64_t>(boundaries_[0])) draws_ = true;
    if (step.op->random && i < last_guard_) draws_before_guard_ = true;
  }
}

// What the program writes that others see, and what of it before the last guard.
void StaticProgram::find_writes() {
  std::vector<bool> written(storages_.size(), false), early(storages_.size(), false);
  for (int64_t i = 0; i < static_cast<int64_t>(all_.steps.size()); i++) {
    for_each_slot(all_.steps[i], [&](uint32_t slot, bool writes) {
      if (!writes) return;
      written[all_.slots[slot].storage] = true;
      if (i < last_guard_) early[all_.slots[slot].storage] = true;
    });
  }
  std::vector<bool> met(storages_.size(), false);
  for (uint32_t slot = 0; slot < all_.slots.size(); slot++) {
    if (!all_.tensors[slot].defined() || all_.slots[slot].unplanned) continue;
    uint32_t storage = all_.slots[slot].storage;
    if (written[storage]) written_.push_back(slot);
    if (early[storage] && !met[storage]) written_before_guard_.push_back(slot);
    met[storage] = true;
  }
  for (uint32_t index = 0; index < all_.inputs.size(); index++) {
    uint32_t slot = all_.inputs[index];
    bool is_input = storage_of(slot).kind == StorageInfo::kInput;
    if (is_input && written[all_.slots[slot].storage]) written_inputs_.push_back(index);
  }
}

}  // namespace torchreel::graphs
