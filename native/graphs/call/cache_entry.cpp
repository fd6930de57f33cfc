#include "graphs/call/cache_entry.h"

#include <c10/core/InferenceMode.h>

#include "tape/capture/slots.h"

namespace torchreel::graphs {

namespace {

constexpr auto kLong = std::chrono::microseconds(50);  // a run that is worth giving the GIL away for

// Stands for a history that is gone.
class SpentBackward : public torch::autograd::Node {
 public:
  explicit SpentBackward(std::string function) : function_(std::move(function)) {}
  std::string name() const override { return "SpentBackward<" + function_ + ">"; }

 protected:
  torch::autograd::variable_list apply(torch::autograd::variable_list&&) override {
    TORCH_CHECK(false, "Trying to backward through the graph a second time: this is an output of ", function_,
                ", which torchreel.graphed replays with the backward that the function runs itself, so that its "
                "outputs have no history. Run this backward inside of the function, or graph the forward alone.");
  }

 private:
  std::string function_;
};

// Indices of the slots that lie on one of these storages.
std::vector<uint32_t> indices_on(const std::vector<uint32_t>& storages, const std::vector<uint32_t>& slots,
                                 const StaticProgram& program) {
  std::vector<uint32_t> found;
  for (uint32_t index = 0; index < slots.size(); index++) {
    if (slots[index] == tape::kNone) continue;
    for (uint32_t storage : storages) {
      if (program.slot(slots[index]).storage == storage) found.push_back(index);
    }
  }
  return found;
}

// The same memory as a tensor that was made in inference mode, or out of it.
at::Tensor remade_in(bool inference, const at::Tensor& before) {
  c10::InferenceMode mode(inference);
  auto after = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(before.storage()),
                                                        c10::DispatchKeySet(c10::DispatchKey::CPU), before.dtype());
  after.unsafeGetTensorImpl()->set_sizes_and_strides(before.sizes(), before.strides(), before.storage_offset());
  after._set_conj(before.is_conj());
  after._set_neg(before.is_neg());
  return after;
}

}  // namespace

CacheEntry::CacheEntry(std::shared_ptr<Signature> signature, const Modes& modes, std::shared_ptr<Replay> replay,
                       std::shared_ptr<PythonGuards> guards, uint64_t number)
    : signature(std::move(signature)),
      modes(modes),
      replay(std::move(replay)),
      guards(std::move(guards)),
      number(number) {
  this->replay->grad = modes.grad();
}

void CacheEntry::differentiate(std::shared_ptr<Differentiation> how) {
  const auto& program = replay->program();
  how->segment = differentiations_.size();
  how->modes = modes;
  auto saved = program.saved_for(how->segment);
  how->frees = how->frees || !saved.empty();
  how->kept_outputs = indices_on(saved, program.recorded().outputs, program);
  how->kept_inputs = indices_on(saved, program.recorded().inputs, program);
  differentiations_.push_back(std::move(how));
}

void CacheEntry::set_aliases(std::vector<OutputAlias> aliases, std::vector<std::pair<uint32_t, bool>> in_inference) {
  aliases_ = std::move(aliases);
  in_inference_ = std::move(in_inference);
}

void CacheEntry::add_time(std::chrono::nanoseconds time) {
  least_ = std::min(least_, time);
  if (++runs_ == kTimedRuns) is_long_ = least_ > kLong;
}

void CacheEntry::set_spent(const std::vector<uint32_t>& outputs) {
  spent_ = outputs;
  spent_node_ = c10::make_intrusive<SpentBackward>(replay->name);
  const auto& program = replay->program();
  for (uint32_t index : outputs) {
    const auto& slot = program.slot(program.recorded().outputs[index]);
    auto options = at::TensorOptions().dtype(slot.dtype);
    spent_node_->add_input_metadata(options, c10::SymIntArrayRef(c10::fromIntArrayRefSlow(slot.sizes)), false, false,
                                    std::nullopt);
  }
}

void CacheEntry::relate_aliases(Tensors& results, const Tensors& given) const {
  for (auto [index, inference] : in_inference_) {
    results[index] = remade_in(inference, results[index]);
  }
  for (const auto& alias : aliases_) {
    const auto& base = alias.from == OutputAlias::kOutput  ? results[alias.index]
                       : alias.from == OutputAlias::kInput ? given[alias.index]
                                                           : replay->program().tensor(alias.index);
    auto& result = results[alias.output];
    if (result.is_same(base)) continue;
    bool alike = base.scalar_type() == result.scalar_type() && base.is_conj() == result.is_conj() &&
                 base.is_neg() == result.is_neg();
    if (alias.is_view && alike) {
      result = base.as_strided(result.sizes(), result.strides(), result.storage_offset());
    } else if (!base.is_inference() && !result.is_inference()) {
      result.unsafeGetTensorImpl()->set_version_counter(base.unsafeGetTensorImpl()->version_counter());
    }
  }
}

void CacheEntry::connect_spent(Tensors& results) const {
  for (uint32_t i = 0; i < spent_.size(); i++) {
    auto& tensor = results[spent_[i]];
    if (tensor.defined() && !tensor.requires_grad()) {
      torch::autograd::impl::set_gradient_edge(tensor, torch::autograd::Edge(spent_node_, i));
    }
  }
}

}  // namespace torchreel::graphs
