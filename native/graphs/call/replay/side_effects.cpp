#include "graphs/call/replay/side_effects.h"

#include <cstring>

#include "graphs/call/replay/addresses.h"
#include "tape/capture/slots.h"

namespace torchreel::graphs {

using tape::Binding;
using tape::kNone;

namespace {

Lease* lease_of(const at::Tensor& gradient) {
  return gradient.defined() && gradient.has_storage() ? Pool::lease_of(*storage_impl(gradient)) : nullptr;
}

void copy_back(const StaticProgram& program, const Graph& graph, const Tensors& given) {
  for (uint32_t index : program.written_inputs()) {
    const auto& input = given[index];
    const auto& ours = graph.inputs()[index];
    if (ours.address == nullptr) {
      // The kernels wrote to it in place.
    } else if (input.is_contiguous()) {
      memcpy(input.mutable_data_ptr(), ours.address, input.nbytes());
    } else {
      input.copy_(ours.tensor);
    }
  }
}

// Counts up the versions of what was written, as often as eager does. Tensors that share a counter count it up once.
void count_versions(const StaticProgram& program, const Tensors& given) {
  thread_local std::vector<std::pair<c10::TensorImpl*, uint32_t>> wanted;
  wanted.clear();
  const auto& all = program.recorded();
  auto want = [&](const at::Tensor& tensor, uint32_t slot) {
    auto* impl = tensor.unsafeGetTensorImpl();
    if (all.bumps[slot] == 0 || impl->is_inference()) return;
    wanted.emplace_back(impl, impl->version_counter().current_version() + all.bumps[slot]);
  };
  for (uint32_t index : program.written_inputs()) want(given[index], all.inputs[index]);
  for (uint32_t slot : program.written()) want(program.tensor(slot), slot);
  for (auto [impl, version] : wanted) {
    while (impl->version_counter().current_version() < version) impl->bump_version();
  }
}

at::Tensor owner_of(const Binding& binding, const StaticProgram& program, const Tensors& given) {
  auto owner = program.tensor(binding.owner);
  if (owner.defined()) return owner;
  const auto& inputs = program.recorded().inputs;
  for (size_t i = 0; i < inputs.size(); i++) {
    if (inputs[i] == binding.owner) owner = given[i];
  }
  return owner;
}

void apply_bindings(const StaticProgram& program, Graph& graph, const Tensors& given, Outputs& outputs) {
  for (const auto& binding : program.recorded().bindings) {
    auto owner = owner_of(binding, program, given);
    if (binding.kind == Binding::kCopy) {
      owner.copy_(graph.tensor(binding.value));
      continue;
    }
    auto& gradient = owner.mutable_grad();
    Lease* lease = lease_of(gradient);
    if (lease != nullptr && lease->passing) {
      lease->passing = false;  // the same tensor, written again
      continue;
    }
    gradient = outputs.at(binding.value);
  }
}

}  // namespace

bool has_side_effects(const StaticProgram& program) {
  return !program.written().empty() || !program.written_inputs().empty() || !program.recorded().bindings.empty();
}

void release_gradients(const StaticProgram& program, const Graph* graph) {
  for (const auto& binding : program.recorded().bindings) {
    if (binding.kind != Binding::kGradient || !binding.cleared) continue;
    auto& gradient = program.tensor(binding.owner).mutable_grad();
    if (!gradient.defined()) continue;
    Lease* lease = lease_of(gradient);
    bool alone = lease != nullptr && lease->maker == graph && gradient.use_count() == 1 &&
                 gradient.storage().use_count() == 1 && binding.value != kNone;
    if (alone) {
      lease->passing = true;
    } else {
      gradient.reset();
    }
  }
}

void leave_side_effects(const StaticProgram& program, Graph& graph, const Tensors& given, Outputs& outputs) {
  copy_back(program, graph, given);
  count_versions(program, given);
  apply_bindings(program, graph, given, outputs);
}

}  // namespace torchreel::graphs
