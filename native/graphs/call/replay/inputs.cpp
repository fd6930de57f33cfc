#include "graphs/call/replay/inputs.h"

#include <algorithm>
#include <cstring>

#include "graphs/call/replay/addresses.h"

namespace torchreel::graphs {

namespace {

// To copy an input of so many bytes costs more than to make a graph that reads it in place, if it stays there.
constexpr size_t kLarge = 16 * 1024;

size_t bytes_of(const tape::PlanSlot& slot) {
  size_t bytes = c10::elementSize(slot.dtype);
  for (int64_t size : slot.sizes) bytes *= static_cast<size_t>(size);
  return bytes;
}

// For each input, whether another input lies on the same storage.
std::vector<bool> on_shared_storages(const StaticProgram& program) {
  const auto& inputs = program.recorded().inputs;
  std::vector<bool> shared(inputs.size(), false);
  for (size_t i = 0; i < inputs.size(); i++) {
    for (size_t j = 0; j < i; j++) {
      if (program.slot(inputs[i]).storage == program.slot(inputs[j]).storage) shared[i] = shared[j] = true;
    }
  }
  return shared;
}

}  // namespace

Inputs::Inputs(const StaticProgram& program, std::vector<bool> fixed) : program_(program), fixed_(std::move(fixed)) {
  const auto& inputs = program_.recorded().inputs;
  for (uint32_t i = 0; i < inputs.size(); i++) {
    if (program_.slot(inputs[i]).unplanned) {
      unplanned_.push_back(i);
    } else if (bytes_of(program_.slot(inputs[i])) >= kLarge) {
      large_.push_back(i);
    }
  }
}

// Parameters, outputs of other graphs, and large inputs that stay.
std::vector<char*> Inputs::to_bind(const Tensors& given, const Addresses& last) const {
  const auto& inputs = program_.recorded().inputs;
  std::vector<char*> all(inputs.size(), nullptr);
  // A guard that fails undoes what was written: that is easy only if inputs are copies.
  if (program_.has_guards() && !program_.written_inputs().empty()) return all;
  auto shared = on_shared_storages(program_);
  const auto& saved = program_.saved();
  for (size_t i = 0; i < inputs.size(); i++) {
    const auto& tensor = given[i];
    if (std::find(saved.begin(), saved.end(), program_.slot(inputs[i]).storage) != saved.end()) continue;
    if (shared[i] || program_.storage_of(inputs[i]).kind != StorageInfo::kInput || tensor.numel() == 0) continue;
    if (program_.slot(inputs[i]).unplanned) continue;
    bool stays = tensor.nbytes() >= kLarge && i < last.size() && last[i] == data_of(*storage_impl(tensor));
    bool fixed = i < fixed_.size() && fixed_[i];
    bool leased = Pool::lease_of(*storage_impl(tensor)) != nullptr;
    if (stays || fixed || leased) all[i] = static_cast<char*>(tensor.mutable_data_ptr());
  }
  return all;
}

void Inputs::note_addresses(const Tensors& given, Addresses& last) const {
  if (last.size() != given.size()) last.resize(given.size());
  for (uint32_t i : large_) last[i] = data_of(*storage_impl(given[i]));
}

void Inputs::copy_in(Graph& graph, const Tensors& given) const {
  graph.give(given);
  for (uint32_t i : unplanned_) {
    if (graph.part().is_forward()) graph.unplanned(program_.recorded().inputs[i]) = given[i];
  }
  const auto& targets = graph.inputs();
  for (size_t i = 0; i < targets.size(); i++) {
    const auto& target = targets[i];
    if (target.address == nullptr) continue;  // read in place
    if (target.bytes == sizeof(float)) {
      memcpy(target.address, data_of(given[i]), sizeof(float));  // a constant size: no call
    } else if (target.bytes > 0) {
      memcpy(target.address, data_of(given[i]), target.bytes);
    } else if (given[i].numel() > 0) {
      target.tensor.copy_(given[i]);
    }
  }
}

void Inputs::copy_again(Graph& graph, const std::vector<uint32_t>& inputs, const Tensors& given) {
  for (size_t i = 0; i < inputs.size(); i++) {
    const auto& target = graph.inputs()[inputs[i]];
    if (target.address == nullptr || given[i].numel() == 0) continue;
    if (target.bytes > 0) {
      memcpy(target.address, data_of(given[i]), target.bytes);
    } else {
      target.tensor.copy_(given[i]);
    }
  }
}

}  // namespace torchreel::graphs
