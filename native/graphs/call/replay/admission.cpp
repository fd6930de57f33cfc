#include "graphs/call/replay/admission.h"

#include <algorithm>

#include "graphs/call/replay/addresses.h"

namespace torchreel::graphs {

using tape::Binding;

Admission::Admission(const StaticProgram& program) : program_(program) {
  const auto& tensors = program_.recorded().tensors;
  for (uint32_t slot = 0; slot < tensors.size(); slot++) {
    const auto& tensor = tensors[slot];
    if (!tensor.defined() || program_.storage_of(slot).kind != StorageInfo::kExternal) continue;
    externals_.push_back({tensor.unsafeGetTensorImpl(), storage_impl(tensor), tensor.requires_grad()});
    if (!program_.slot(slot).unplanned) tensor_guards_.add(tensor);
  }
  for (uint32_t slot : program_.written()) written_.push_back(storage_impl(tensors[slot]));
  for (const auto& external : externals_) {
    bool writes = std::find(written_.begin(), written_.end(), external.storage) != written_.end();
    if (!writes && !external.tensor->is_inference()) only_read_.push_back(external.tensor);
  }
  const auto& inputs = program_.recorded().inputs;
  for (uint32_t i = 0; i < inputs.size(); i++) {
    if (program_.storage_of(inputs[i]).kind == StorageInfo::kExternal) external_inputs_.push_back(i);
  }
}

Outcome Admission::check(const Tensors& given, bool grad) const {
  if (!state_is_in_place(grad) || !inputs_are_in_place(given)) return Outcome::kMoved;
  if (shares_memory(given)) return Outcome::kAliased;
  return would_accumulate() ? Outcome::kMoved : Outcome::kDone;
}

uint64_t Admission::writes_of_others() const {
  uint64_t count = 0;  // versions only grow
  for (const auto* tensor : only_read_) count += tensor->version_counter().current_version();
  return count;
}

bool Admission::state_is_in_place(bool grad) const {
  if (!tensor_guards_.hold()) return false;
  if (grad) {
    for (const auto& external : externals_) {
      if (external.tensor->requires_grad() != external.requires_grad) return false;
    }
  }
  for (const auto& [owner, gradient] : program_.recorded().held_gradients) {
    if (!owner.grad().is_same(gradient)) return false;
  }
  return true;
}

bool Admission::inputs_are_in_place(const Tensors& given) const {
  const auto& inputs = program_.recorded().inputs;
  for (uint32_t i : external_inputs_) {
    const auto& info = program_.storage_of(inputs[i]);
    if (info.unplanned && !given[i].is_same(program_.tensor(inputs[i]))) return false;
    if (info.unplanned) continue;
    if (storage_impl(given[i]) != info.memory.unsafeGetStorageImpl()) return false;
    if (given[i].storage_offset() != program_.slot(inputs[i]).offset) return false;
  }
  return true;
}

// A graph works on copies of its inputs: a write to one copy would not reach another tensor on the same memory.
bool Admission::shares_memory(const Tensors& given) const {
  if (written_.empty() && program_.written_inputs().empty()) return false;
  const auto& inputs = program_.recorded().inputs;
  for (size_t i = 0; i < inputs.size(); i++) {
    if (program_.storage_of(inputs[i]).kind == StorageInfo::kExternal || !given[i].has_storage()) continue;
    const auto* storage = storage_impl(given[i]);
    for (const auto* other : written_) {
      if (storage == other) return true;
    }
    if (program_.written_inputs().empty()) continue;
    for (const auto& external : externals_) {
      if (storage == external.storage) return true;
    }
  }
  return false;
}

// Whether eager would add to a gradient that the run would replace.
bool Admission::would_accumulate() const {
  for (const auto& binding : program_.recorded().bindings) {
    if (binding.kind != Binding::kGradient || binding.cleared) continue;
    const auto& owner = program_.tensor(binding.owner);
    if (owner.defined() && owner.grad().defined()) return true;
  }
  return false;
}

}  // namespace torchreel::graphs
