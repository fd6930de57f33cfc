// The layer that does every op: torch's own kernel, and a copy of what it gives to where that belongs.
#pragma once

#include <c10/core/GradMode.h>

#include <stdexcept>
#include <string>

#include "graphs/kernels/kernel.h"
#include "graphs/plan/loans.h"

namespace torchreel::graphs {

// An op gave a result of other sizes, or of another dtype, than when it was recorded: the memory that was planned for
// it does not hold it.
struct ShapeChange : std::runtime_error {
  ShapeChange(const tape::OpInfo& op, std::string recorded_, std::string now_);
  std::string recorded;
  std::string now;
};

// Throws ShapeChange where a result is none of this dtype and these sizes.
void check_same(const tape::OpInfo& op, c10::ScalarType dtype, c10::IntArrayRef sizes, const at::Tensor& given);
// All elements, whatever has them.
void copy_to(const at::Tensor& target, const at::Tensor& from);

// Whether the backend for dense CPU tensors is all that a call with these arguments meets.
bool is_dense_cpu(const torch::jit::Stack& arguments);

// Whether a tensor of it is marked as conjugated or negated, which torch resolves on the way to a kernel.
bool has_bits(const KernelCall& call);

// Autograd on or off, as it was for the op; nothing is done where it is so already.
class WithGrad {
 public:
  explicit WithGrad(bool on) : before_(c10::GradMode::is_enabled()), other_(before_ != on) {
    if (other_) c10::GradMode::set_enabled(on);
  }
  ~WithGrad() {
    if (other_) c10::GradMode::set_enabled(before_);
  }
  WithGrad(const WithGrad&) = delete;

 private:
  bool before_;
  bool other_;
};

// With `loans`, the op is given what it may keep.
std::unique_ptr<Kernel> prepare_boxed(const KernelCall& call, std::unique_ptr<Loans> loans = nullptr);

}  // namespace torchreel::graphs
