#include "graphs/run/unplanned.h"

#include "graphs/kernels/layers/boxed.h"
#include "graphs/run/graph.h"
#include "tape/capture/slots.h"
#include "tape/replay/numbers.h"

namespace torchreel::graphs {

using tape::Gave;
using tape::Given;
using tape::kNone;

namespace {

class UnplannedKernel final : public Kernel {
 public:
  UnplannedKernel(const KernelCall& call, const StaticProgram& program, size_t step, Tensors& values,
                  std::unique_ptr<Loans> loans)
      : call_(call), program_(program), step_(program.steps()[step]), values_(values), loans_(std::move(loans)) {
    for (const auto& gave : step_.gave) {
      for (uint32_t slot : gave.slots) gives_unplanned_ = gives_unplanned_ || is_unplanned(slot);
    }
    for (const auto& result : call_.op->handle.schema().returns()) {
      const auto* alias = result.alias_info();
      written_.push_back(alias != nullptr && alias->isWrite());
    }
    for (uint32_t slot = 0; slot < program.recorded().slots.size(); slot++) {
      if (!is_unplanned(slot)) continue;
      const auto& info = program.storage_of(slot);
      bool kept = info.handed_out || info.kind == StorageInfo::kExternal;
      if (!kept && info.last == static_cast<int64_t>(step)) over_.push_back(slot);
    }
  }

  void run() override {
    WithGrad grad(call_.grad);
    stack_.clear();
    for (size_t i = 0; i < step_.given.size(); i++) stack_.push_back(argument(i));
    Lending lending(loans_.get(), stack_);
    call_.op->handle.callBoxed(&stack_);
    size_t index = 0;
    for (size_t i = 0; i < step_.gave.size() && i < stack_.size(); i++) take(i, index);
    stack_.clear();
    for (uint32_t slot : over_) values_[slot].reset();
  }

  const char* layer() const override { return "eager"; }

 private:
  bool is_unplanned(uint32_t slot) const { return slot != kNone && program_.slot(slot).unplanned; }

  at::Tensor value(uint32_t slot, const at::Tensor& in_place, bool written) const {
    if (is_unplanned(slot)) return values_[slot];
    // A sparse tensor may keep the tensors that it is made of, and planned memory is soon overwritten.
    if (gives_unplanned_ && !written && in_place.defined()) return in_place.clone();
    return in_place;
  }

  c10::IValue argument(size_t i) const {
    const auto& given = step_.given[i];
    bool written = call_.op->written[i];
    const auto& in_place = call_.arguments[i];
    if (given.kind == Given::kSlot) return value(given.slots[0], in_place.toTensor(), written);
    if (given.kind == Given::kSlots && !given.nested) {
      c10::List<at::Tensor> list;
      auto tensors = in_place.toTensorVector();
      for (size_t k = 0; k < given.slots.size(); k++) list.push_back(value(given.slots[k], tensors[k], written));
      return list;
    }
    if (given.kind == Given::kOptionalSlots) {
      c10::List<std::optional<at::Tensor>> list;
      auto tensors = in_place.toOptionalTensorVector();
      for (size_t k = 0; k < given.slots.size(); k++) {
        bool none = given.slots[k] == kNone;
        list.push_back(none ? std::nullopt
                            : std::optional(value(given.slots[k], tensors[k].value_or(at::Tensor()), written)));
      }
      return list;
    }
    return in_place;
  }

  // Takes the i-th result of the op; `index` counts the tensors of all results.
  void take(size_t i, size_t& index) {
    const auto& gave = step_.gave[i];
    if (gave.kind == Gave::kSlot) {
      take(gave.slots[0], stack_[i].toTensor(), call_.results[index++], written_[i]);
    } else if (gave.kind == Gave::kSlots) {
      auto tensors = stack_[i].toTensorVector();
      if (tensors.size() != gave.slots.size()) {
        throw ShapeChange(*step_.op, std::to_string(gave.slots.size()) + " results", std::to_string(tensors.size()));
      }
      for (size_t k = 0; k < tensors.size(); k++) take(gave.slots[k], tensors[k], call_.results[index++], written_[i]);
    } else {
      index++;
      if (gave.kind == Gave::kNumber && step_.guarded && !tape::same_number(gave.number, stack_[i])) {
        throw GuardFailure{step_.index, tape::text_of(gave.number), tape::text_of(stack_[i])};
      }
    }
  }

  void take(uint32_t slot, const at::Tensor& given, const at::Tensor& in_place, bool written) {
    if (slot == kNone) return;
    const auto& wanted = program_.slot(slot);
    check_same(*step_.op, wanted.dtype, wanted.sizes, given);
    if (is_unplanned(slot)) {
      values_[slot] = given;
    } else if (!written) {
      copy_to(in_place, given);
    }
  }

  KernelCall call_;
  const StaticProgram& program_;
  const tape::Step& step_;
  Tensors& values_;
  torch::jit::Stack stack_;
  std::unique_ptr<Loans> loans_;
  std::vector<uint32_t> over_;  // unplanned slots that no later step uses
  std::vector<bool> written_;   // for each result: it is an argument
  bool gives_unplanned_ = false;
};

}  // namespace

std::unique_ptr<Kernel> unplanned_kernel(const KernelCall& call, const StaticProgram& program, size_t step,
                                         Tensors& values, std::unique_ptr<Loans> loans) {
  return std::make_unique<UnplannedKernel>(call, program, step, values, std::move(loans));
}

}  // namespace torchreel::graphs
