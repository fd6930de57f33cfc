// Ops that fill new or old tensors with one value.
#include <ATen/native/Fill.h>

#include <cmath>
#include <cstring>

#include "graphs/kernels/handwritten.h"

namespace torchreel::graphs {

namespace {

// Whether all bytes of the value are zero. Those of minus zero are not.
bool all_zero(const at::Tensor& tensor, const at::Scalar& value) {
  if (value.isFloatingPoint()) return value.toDouble() == 0 && !std::signbit(value.toDouble());
  return !value.isComplex() && value.equal(0) && !tensor.is_quantized();
}

std::unique_ptr<Kernel> fill_kernel(const at::Tensor& target, const at::Scalar& value) {
  if (target.is_quantized() || target.is_conj() || target.is_neg()) return nullptr;
  if (value.isComplex() && !target.is_complex()) return nullptr;
  if (target.numel() == 0) return kernel_of("fill", [] {});
  if (is_dense(target) && all_zero(target, value)) {
    return kernel_of("fill", [target, memory = target.mutable_data_ptr(), bytes = target.nbytes()] {
      std::memset(memory, 0, bytes);
    });
  }
  auto iterator = at::TensorIteratorConfig()
                      .set_check_mem_overlap(false)
                      .check_all_same_dtype(false)
                      .add_owned_output(target)
                      .resize_outputs(false)
                      .build();
  return kernel_of("fill", [iterator = at::TensorIterator(std::move(iterator)), value]() mutable {
    at::native::fill_stub(at::kCPU, iterator, value);
  });
}

std::unique_ptr<Kernel> zeros(const KernelCall& call) { return fill_kernel(call.results[0], 0); }

std::unique_ptr<Kernel> ones(const KernelCall& call) { return fill_kernel(call.results[0], 1); }

std::unique_ptr<Kernel> second(const KernelCall& call) {
  return fill_kernel(call.results[0], call.arguments[1].toScalar());
}

std::unique_ptr<Kernel> third(const KernelCall& call) {
  return fill_kernel(call.results[0], call.arguments[2].toScalar());
}

}  // namespace

void add_fills(Preparers& table) {
  for (auto name : {"aten::zero_", "aten::zeros", "aten::zeros_like", "aten::new_zeros"}) table[name] = zeros;
  for (auto name : {"aten::ones", "aten::ones_like", "aten::new_ones"}) table[name] = ones;
  for (auto name : {"aten::fill_.Scalar", "aten::fill.Scalar", "aten::full", "aten::full_like"}) table[name] = second;
  table["aten::new_full"] = third;
}

}  // namespace torchreel::graphs
