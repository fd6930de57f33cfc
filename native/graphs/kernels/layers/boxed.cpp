#include "graphs/kernels/layers/boxed.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <sstream>
#include <vector>

#include "graphs/kernels/layers/result_placement.h"
#include "tape/steps/collectives.h"
#include "torch/below_autograd.h"

namespace torchreel::graphs {

namespace {

std::string text_of(c10::ScalarType dtype, c10::IntArrayRef sizes) {
  std::ostringstream text;
  text << dtype << ' ' << sizes;
  return text.str();
}

std::optional<c10::SafeKernelFunction> direct_kernel(const KernelCall& call) {
  const auto& op = call.op->handle;
  if (!is_dense_cpu(call.arguments) || !op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU)) return std::nullopt;
  return op.getComputedKernelForDispatchKey(c10::DispatchKey::CPU);
}

// The result that the op should make in planned memory: the largest, if the op is torch's and all its results are new.
// -1 for none.
int64_t largest_result(const KernelCall& call) {
  const auto& returns = call.op->handle.schema().returns();
  if (!call.op->name.starts_with("aten::") || call.op->varying || returns.size() != call.results.size()) return -1;
  int64_t largest = -1;
  for (size_t i = 0; i < returns.size(); i++) {
    if (returns[i].alias_info() != nullptr || returns[i].type()->kind() != c10::TypeKind::TensorType) return -1;
    if (!call.results[i].defined()) continue;
    if (largest < 0 || call.results[i].nbytes() > call.results[largest].nbytes()) largest = static_cast<int64_t>(i);
  }
  return largest;
}

class BoxedKernel final : public Kernel {
 public:
  explicit BoxedKernel(const KernelCall& call, std::unique_ptr<Loans> loans)
      : info_(*call.op),
        op_(call.op->handle),
        kernel_(direct_kernel(call)),
        given_(call.arguments),
        results_(call.results),
        grad_(call.grad),
        collective_(tape::is_collective(call.op->name)),
        loans_(std::move(loans)) {
    for (const auto& result : op_.schema().returns()) {
      const auto* alias = result.alias_info();
      written_.push_back(alias != nullptr && alias->isWrite());
    }
    for (size_t i = 0; i < given_.size(); i++) {
      if (given_[i].isOptionalTensorList()) indices_.push_back(i);
    }
    stack_.reserve(given_.size() + 4);
    largest_ = kernel_.has_value() && !collective_ ? largest_result(call) : -1;
    if (largest_ >= 0) placement_ = ResultPlacement::of(results_[largest_], call.idle);
  }

  void run() override {
    WithGrad grad(grad_);
    stack_.assign(given_.begin(), given_.end());
    // Index ops replace tensors in the very list that they are given.
    for (size_t i : indices_) stack_[i] = given_[i].toOptionalTensorList().copy();
    if (loans_ != nullptr) return run_lent();
    {
      ResultPlacement::During during(placement_.get());
      call();
    }
    if (placement_ != nullptr) look();
    keep();
    stack_.clear();
  }

  const char* layer() const override { return "boxed"; }

 private:
  void run_lent() {
    Lending lending(loans_.get(), stack_);
    call();
    keep();
  }

  void call() {
    if (collective_) {
      tape::run_collective(op_, &stack_);
    } else if (kernel_.has_value()) {
      kernel_->callBoxed(op_, c10::DispatchKeySet(c10::DispatchKey::CPU), &stack_);
    } else {
      op_.callBoxed(&stack_);
    }
  }

  void look() {
    std::vector<const at::Tensor*> others;
    for (size_t i = 0; i < stack_.size(); i++) {
      if (stack_[i].isTensor() && static_cast<int64_t>(i) != largest_) others.push_back(&stack_[i].toTensor());
    }
    if (stack_.size() == results_.size() && stack_[largest_].isTensor()) {
      placement_->look(stack_[largest_].toTensor(), std::move(others));
    }
  }

  void keep() {
    bool checked = !ran_ || info_.varying;
    size_t index = 0;
    for (size_t i = 0; i < stack_.size(); i++) {
      const auto& value = stack_[i];
      if (value.isTensorList()) {
        for (const at::Tensor& tensor : value.toTensorVector()) keep(index++, tensor, written_[i], checked);
      } else if (value.isTensor()) {
        keep(index++, value.toTensor(), written_[i], checked);
      } else {
        index++;
      }
    }
    if (checked && index != results_.size()) {
      throw ShapeChange(info_, std::to_string(results_.size()) + " results", std::to_string(index));
    }
    ran_ = true;
  }

  void keep(size_t index, const at::Tensor& given, bool written, bool checked) {
    if (index >= results_.size() || !results_[index].defined() || written) return;
    const auto& wanted = results_[index];
    if (checked) check_same(info_, wanted.scalar_type(), wanted.sizes(), given);
    copy_to(wanted, given);
  }

  const tape::OpInfo& info_;
  c10::OperatorHandle op_;
  std::optional<c10::SafeKernelFunction> kernel_;  // nothing if the dispatcher must find it each time
  torch::jit::Stack given_;
  torch::jit::Stack stack_;
  std::vector<size_t> indices_;  // arguments that are lists of optional tensors
  std::vector<at::Tensor> results_;
  std::vector<bool> written_;  // for each result of the schema: it is an argument
  bool grad_;
  bool collective_;
  int64_t largest_ = -1;  // of the results
  std::unique_ptr<ResultPlacement> placement_;
  std::unique_ptr<Loans> loans_;  // nothing for ops of torch
  bool ran_ = false;
};

}  // namespace

ShapeChange::ShapeChange(const tape::OpInfo& op, std::string recorded_, std::string now_)
    : std::runtime_error("The op " + op.name + " gave " + recorded_ + " when it was recorded, and gives " + now_ +
                         " now: the memory of the graph does not fit it."),
      recorded(std::move(recorded_)),
      now(std::move(now_)) {}

void check_same(const tape::OpInfo& op, c10::ScalarType dtype, c10::IntArrayRef sizes, const at::Tensor& given) {
  if (given.defined() && given.scalar_type() == dtype && given.sizes() == sizes) return;
  throw ShapeChange(op, text_of(dtype, sizes),
                    given.defined() ? text_of(given.scalar_type(), given.sizes()) : "no tensor");
}

void copy_to(const at::Tensor& target, const at::Tensor& from) {
  if (from._is_zerotensor()) {  // autograd's zeros have no memory
    target.zero_();
    return;
  }
  auto is_plain = [](const at::Tensor& tensor) {
    return tensor.layout() == c10::kStrided && tensor.is_cpu() && !tensor.is_conj() && !tensor.is_neg();
  };
  if (!is_plain(from) || !is_plain(target) || from.strides() != target.strides() ||
      !target.is_non_overlapping_and_dense()) {
    target.copy_(from);
  } else if (target.numel() != 0 && from.const_data_ptr() != target.const_data_ptr()) {
    std::memcpy(target.mutable_data_ptr(), from.const_data_ptr(), target.nbytes());
  }
}

bool is_dense_cpu(const torch::jit::Stack& arguments) {
  c10::DispatchKeySet keys;
  bool any = false;
  auto add = [&](const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    any = true;
    keys = keys | tensor.key_set();
  };
  for (const auto& value : arguments) {
    if (value.isTensor()) {
      add(value.toTensor());
    } else if (value.isList()) {
      for (const auto& element : value.toListRef()) {
        if (element.isTensor()) add(element.toTensor());
      }
    }
  }
  return any && (keys - kAbove) == c10::DispatchKeySet(c10::DispatchKey::CPU);
}

bool has_bits(const KernelCall& call) {
  auto marked = [](const at::Tensor& tensor) { return tensor.defined() && (tensor.is_conj() || tensor.is_neg()); };
  for (const auto& value : call.arguments) {
    if (value.isTensor() && marked(value.toTensor())) return true;
    if (!value.isList()) continue;
    for (const auto& element : value.toListRef()) {
      if (element.isTensor() && marked(element.toTensor())) return true;
    }
  }
  return std::any_of(call.results.begin(), call.results.end(), marked);
}

std::unique_ptr<Kernel> prepare_boxed(const KernelCall& call, std::unique_ptr<Loans> loans) {
  return std::make_unique<BoxedKernel>(call, std::move(loans));
}

}  // namespace torchreel::graphs
