#include "graphs/run/numbers.h"

#include "graphs/kernels/layers/boxed.h"
#include "graphs/run/graph.h"
#include "tape/replay/numbers.h"

namespace torchreel::graphs {

using tape::Gave;
using tape::Given;

namespace {

class NumberKernel : public Kernel {
 public:
  NumberKernel(const KernelCall& call, const tape::Step& step, std::vector<double>& numbers,
               std::unique_ptr<Loans> loans)
      : call_(call), step_(step), numbers_(numbers), loans_(std::move(loans)) {}

  void run() override {
    stack_ = call_.arguments;
    Lending lending(loans_.get(), stack_);
    step_.op->handle.callBoxed(&stack_);
    size_t result = 0;
    for (size_t i = 0; i < step_.gave.size(); i++) {
      const auto& gave = step_.gave[i];
      if (gave.kind == Gave::kSlot) call_.results[result].copy_(stack_[i].toTensor());
      result += std::max<size_t>(gave.slots.size(), 1);
      if (gave.kind != Gave::kNumber) continue;
      if (step_.keeps_number) numbers_[step_.index] = stack_[i].toScalar().toDouble();
      if (!step_.guarded || tape::same_number(gave.number, stack_[i])) continue;
      throw GuardFailure{step_.index, tape::text_of(gave.number), tape::text_of(stack_[i])};
    }
  }
  const char* layer() const override { return "guard"; }

 private:
  KernelCall call_;
  const tape::Step& step_;
  std::vector<double>& numbers_;
  torch::jit::Stack stack_;
  std::unique_ptr<Loans> loans_;
};

class FormulaKernel : public Kernel {
 public:
  FormulaKernel(const KernelCall& call, const tape::Step& step, const std::vector<double>& numbers,
                std::unique_ptr<Loans> loans)
      : call_(call), step_(step), numbers_(numbers), loans_(std::move(loans)) {
    const auto& handle = call_.op->handle;
    if (!has_bits(call_) && handle.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU)) {
      kernel_.emplace(handle.getComputedKernelForDispatchKey(c10::DispatchKey::CPU));
    }
    for (size_t i = 0; i < call_.op->written.size(); i++) in_place_ = in_place_ || call_.op->written[i];
  }

  void run() override {
    stack_ = call_.arguments;
    Lending lending(loans_.get(), stack_);
    for (size_t i = 0; i < step_.given.size(); i++) {
      const auto& given = step_.given[i];
      if (given.kind == Given::kFormula) {
        stack_[i] = evaluate(given.formulas[0], numbers_);
      } else if (given.kind == Given::kFormulaTensor) {
        stack_[i] = tape::number_tensor(evaluate(given.formulas[0], numbers_));
      } else if (given.kind == Given::kFormulas) {
        c10::impl::GenericList list(c10::NumberType::get());
        for (const auto& formula : given.formulas) list.push_back(evaluate(formula, numbers_));
        stack_[i] = std::move(list);
      }
    }
    if (kernel_.has_value()) {
      kernel_->callBoxed(call_.op->handle, c10::DispatchKeySet(c10::DispatchKey::CPU), &stack_);
    } else {
      call_.op->handle.callBoxed(&stack_);
    }
    if (in_place_) return;
    for (size_t i = 0; i < call_.results.size() && i < stack_.size(); i++) {
      if (call_.results[i].defined()) call_.results[i].copy_(stack_[i].toTensor());
    }
  }
  const char* layer() const override { return "formula"; }

 private:
  KernelCall call_;
  const tape::Step& step_;
  const std::vector<double>& numbers_;
  std::optional<c10::SafeKernelFunction> kernel_;
  bool in_place_ = false;
  torch::jit::Stack stack_;
  std::unique_ptr<Loans> loans_;
};

}  // namespace

std::unique_ptr<Kernel> number_kernel(const KernelCall& call, const tape::Step& step, std::vector<double>& numbers,
                                      std::unique_ptr<Loans> loans) {
  return std::make_unique<NumberKernel>(call, step, numbers, std::move(loans));
}

std::unique_ptr<Kernel> formula_kernel(const KernelCall& call, const tape::Step& step,
                                       const std::vector<double>& numbers, std::unique_ptr<Loans> loans) {
  return std::make_unique<FormulaKernel>(call, step, numbers, std::move(loans));
}

}  // namespace torchreel::graphs
