#include "graphs/kernels/reductions.h"

#include <ATen/native/ReduceOps.h>
#include <ATen/native/ReduceOpsUtils.h>

#include "graphs/kernels/handwritten.h"

namespace torchreel::graphs {

Sum::Sum(const at::Tensor& result, const at::Tensor& source, at::OptionalIntArrayRef dimensions, bool keep,
         int64_t divisor)
    : iterator_(at::meta::make_reduction_from_out_ty(source, result, dimensions, keep, result.scalar_type())),
      result_(result),
      divisor_(divisor) {}

namespace {

template <class T>
void divide(const at::Tensor& tensor, int64_t divisor) {
  T* numbers = tensor.mutable_data_ptr<T>();
  for (int64_t i = 0; i < tensor.numel(); i++) numbers[i] = numbers[i] / static_cast<T>(divisor);
}

}  // namespace

void Sum::run() {
  at::native::sum_stub(at::kCPU, iterator_);
  if (divisor_ == 0) return;
  if (result_.scalar_type() == at::kFloat) {
    divide<float>(result_, divisor_);
  } else {
    divide<double>(result_, divisor_);
  }
}

namespace {

struct Over {
  std::vector<int64_t> dimensions;  // all if it is empty
  bool keep = false;
};

Over over(const KernelCall& call) {
  Over asked;
  if (call.arguments[1].isIntList()) asked.dimensions = call.arguments[1].toIntVector();
  asked.keep = call.arguments[2].toBool();
  return asked;
}

std::unique_ptr<Kernel> sum(const KernelCall& call, const Over& asked) {
  const auto& result = call.results[0];
  auto source = tensor_at(call, 0);
  if (source.scalar_type() != result.scalar_type() || source.numel() == 0) return nullptr;
  if (source.is_conj() || source.is_neg()) return nullptr;
  return kernel_of("stub", [sum = Sum(result, source, asked.dimensions, asked.keep)]() mutable { sum.run(); });
}

std::unique_ptr<Kernel> sum_of_all(const KernelCall& call) { return sum(call, {}); }

std::unique_ptr<Kernel> sum_over(const KernelCall& call) { return sum(call, over(call)); }

std::unique_ptr<Kernel> mean(const KernelCall& call, const Over& asked) {
  const auto& result = call.results[0];
  auto source = tensor_at(call, 0);
  auto type = result.scalar_type();
  if (source.scalar_type() != type || source.numel() == 0 || !is_dense(result)) return nullptr;
  if (type != at::kFloat && type != at::kDouble) return nullptr;
  int64_t divisor = source.numel() / result.numel();
  return kernel_of("stub",
                   [mean = Sum(result, source, asked.dimensions, asked.keep, divisor)]() mutable { mean.run(); });
}

std::unique_ptr<Kernel> mean_of_all(const KernelCall& call) { return mean(call, {}); }

std::unique_ptr<Kernel> mean_over(const KernelCall& call) { return mean(call, over(call)); }

}  // namespace

void add_reductions(Preparers& table) {
  table["aten::sum"] = sum_of_all;
  table["aten::sum.dim_IntList"] = sum_over;
  table["aten::mean"] = mean_of_all;
  table["aten::mean.dim"] = mean_over;
}

}  // namespace torchreel::graphs
