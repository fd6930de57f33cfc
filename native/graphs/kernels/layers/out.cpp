#include "graphs/kernels/layers/out.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <stdexcept>
#include <string>
#include <unordered_set>
#include <vector>

#include "graphs/kernels/layers/boxed.h"

namespace torchreel::graphs {

namespace {

// Ops whose out= resizes a tensor that has the right size, with a warning, or whose bits differ from those of the op
// without out=.
const std::unordered_set<std::string_view> kUnused = {
    "aten::mse_loss",       "aten::l1_loss",           "aten::huber_loss",
    "aten::smooth_l1_loss", "aten::native_batch_norm", "aten::binary_cross_entropy",
};

struct Memory {
  explicit Memory(const at::Tensor& tensor)
      : data(tensor.const_data_ptr()), sizes(tensor.sizes().vec()), strides(tensor.strides().vec()) {}
  bool is_of(const at::Tensor& tensor) const {
    return tensor.const_data_ptr() == data && tensor.sizes() == sizes && tensor.strides() == strides;
  }
  const void* data;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
};

class OutKernel final : public Kernel {
 public:
  OutKernel(const KernelCall& call, c10::OperatorHandle op)
      : op_(op),
        kernel_(op.getComputedKernelForDispatchKey(c10::DispatchKey::CPU)),
        given_(call.arguments),
        results_(call.results),
        grad_(call.grad) {
    for (const auto& result : results_) given_.emplace_back(result);
    stack_.reserve(given_.size());
  }

  void run() override {
    WithGrad grad(grad_);
    stack_.assign(given_.begin(), given_.end());
    if (ran_) {
      kernel_.callBoxed(op_, kCpu, &stack_);
    } else {
      first_run();
    }
    stack_.clear();
  }

  const char* layer() const override { return "out"; }

 private:
  // One trial is enough: an op treats the memory that it is given in the same way each time.
  void first_run() {
    std::vector<Memory> before(results_.begin(), results_.end());
    kernel_.callBoxed(op_, kCpu, &stack_);
    for (size_t i = 0; i < results_.size(); i++) {
      if (!before[i].is_of(results_[i])) {
        throw std::runtime_error("The op " + c10::toString(op_.operator_name()) +
                                 " has not kept to the memory of a graph, and cannot be replayed in one.");
      }
    }
    ran_ = true;
  }

  static constexpr c10::DispatchKeySet kCpu{c10::DispatchKey::CPU};
  c10::OperatorHandle op_;
  c10::SafeKernelFunction kernel_;
  torch::jit::Stack given_;
  torch::jit::Stack stack_;
  std::vector<at::Tensor> results_;
  bool grad_;
  bool ran_ = false;
};

}  // namespace

std::unique_ptr<Kernel> prepare_out(const KernelCall& call) {
  const std::string& name = call.op->name;
  auto found = out_overloads().find(name);
  if (found == out_overloads().end() || kUnused.count(name) != 0) return nullptr;
  // Sizes that depend on values are unknown beforehand, and the tape checks random ops.
  if (call.op->varying || call.op->random || !is_dense_cpu(call.arguments)) return nullptr;
  for (const auto& result : call.results) {
    if (!result.defined()) return nullptr;
  }
  auto op = c10::Dispatcher::singleton().findSchema({found->second.first, found->second.second});
  if (!op.has_value() || !op->hasKernelForDispatchKey(c10::DispatchKey::CPU)) return nullptr;
  if (op->schema().arguments().size() != call.arguments.size() + call.results.size()) return nullptr;
  return std::make_unique<OutKernel>(call, *op);
}

}  // namespace torchreel::graphs
