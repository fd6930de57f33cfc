// The layer that takes every op: torch's own kernel, and a copy of its results into planned memory.
#pragma once

#include <c10/core/GradMode.h>

#include <stdexcept>
#include <string>

#include "graphs/kernels/kernel.h"
#include "graphs/plan/loans.h"

namespace torchreel::graphs {

// A result has other sizes or another dtype than recorded, and does not fit into its planned memory.
struct ShapeChange : std::runtime_error {
  ShapeChange(const tape::OpInfo& op, std::string recorded_, std::string now_);
  std::string recorded;
  std::string now;
};

// Throws ShapeChange if a result has another dtype or other sizes.
void check_same(const tape::OpInfo& op, c10::ScalarType dtype, c10::IntArrayRef sizes, const at::Tensor& given);
// Copies all elements, from a tensor of any kind.
void copy_to(const at::Tensor& target, const at::Tensor& from);

// Whether a call with these arguments meets only the backend for dense CPU tensors.
bool is_dense_cpu(const torch::jit::Stack& arguments);

// Whether a tensor of the call has a conjugate or negative bit, which torch resolves before it calls a kernel.
bool has_bits(const KernelCall& call);

// Sets grad mode as it was for the op, unless it is so already.
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

// With `loans`, the op gets tensors that it may keep.
std::unique_ptr<Kernel> prepare_boxed(const KernelCall& call, std::unique_ptr<Loans> loans = nullptr);

}  // namespace torchreel::graphs
