// Normalisations, by the kernels that torch's own ops call.
#include <ATen/native/batch_norm.h>
#include <ATen/native/layer_norm.h>
#include <ATen/ops/empty.h>

#include "graphs/kernels/copies.h"
#include "graphs/kernels/handwritten.h"

namespace torchreel::graphs {

namespace {

bool all_contiguous(at::ScalarType type, std::initializer_list<at::Tensor> tensors) {
  for (const auto& tensor : tensors) {
    if (tensor.defined() && (tensor.scalar_type() != type || !is_contiguous(tensor))) return false;
  }
  return type == at::kFloat || type == at::kDouble;
}

std::unique_ptr<Kernel> layer_norm(const KernelCall& call) {
  if (call.results.size() != 3) return nullptr;
  auto input = tensor_at(call, 0), weight = tensor_at(call, 2), bias = tensor_at(call, 3);
  auto output = call.results[0], mean = call.results[1], rstd = call.results[2];
  if (!all_contiguous(input.scalar_type(), {weight, bias, output, mean, rstd}) || input.numel() == 0) return nullptr;
  int64_t rows = mean.numel(), columns = input.numel() / rows;
  double eps = call.arguments[4].toDouble();
  at::Tensor source = input;
  Copy copy;
  if (!is_contiguous(input)) {
    if (!may_keep(input)) return nullptr;
    source = at::empty(input.sizes(), input.options());
    copy = Copy(source, input);
  }
  return kernel_of("stub", [=, copy = std::move(copy)]() mutable {
    copy.run();
    at::native::LayerNormKernel(at::kCPU, source, weight, bias, rows, columns, eps, &output, &mean, &rstd);
  });
}

std::unique_ptr<Kernel> layer_norm_backward(const KernelCall& call) {
  if (call.results.size() != 3) return nullptr;
  auto gradient = tensor_at(call, 0), input = tensor_at(call, 1), mean = tensor_at(call, 3), rstd = tensor_at(call, 4);
  auto weight = tensor_at(call, 5);
  auto of_input = call.results[0], of_weight = call.results[1], of_bias = call.results[2];
  if (input.numel() == 0 ||
      !all_contiguous(input.scalar_type(), {gradient, input, mean, rstd, weight, of_input, of_weight, of_bias})) {
    return nullptr;
  }
  int64_t rows = mean.numel(), columns = input.numel() / rows;
  return kernel_of("stub", [=]() mutable {
    at::native::LayerNormBackwardKernel(at::kCPU, gradient, input, mean, rstd, weight, rows, columns, &of_input,
                                        &of_weight, &of_bias);
  });
}

// With the running statistics.
std::unique_ptr<Kernel> batch_norm_of_running(const KernelCall& call, double eps) {
  auto input = tensor_at(call, 0), weight = tensor_at(call, 1), bias = tensor_at(call, 2);
  auto mean = tensor_at(call, 3), variance = tensor_at(call, 4);
  auto output = call.results[0];
  auto type = input.scalar_type();
  if (!mean.defined() || !variance.defined() || input.dim() < 2 || input.numel() == 0) return nullptr;
  if (!all_contiguous(type, {input, weight, bias, mean, variance, output})) return nullptr;
  auto unused = at::empty({0}, input.options());
  return kernel_of("stub", [=]() mutable {
    at::native::batch_norm_cpu_stub(at::kCPU, output, input, weight, bias, unused, unused, mean, variance, false, eps);
  });
}

std::unique_ptr<Kernel> batch_norm(const KernelCall& call) {
  if (call.arguments[5].toBool()) return nullptr;
  return batch_norm_of_running(call, call.arguments[7].toDouble());
}

std::unique_ptr<Kernel> batch_norm_no_training(const KernelCall& call) {
  return batch_norm_of_running(call, call.arguments[6].toDouble());
}

}  // namespace

void add_norms(Preparers& table) {
  table["aten::native_layer_norm"] = layer_norm;
  table["aten::native_layer_norm_backward"] = layer_norm_backward;
  table["aten::native_batch_norm"] = batch_norm;
  table["aten::_native_batch_norm_legit"] = batch_norm;
  table["aten::_native_batch_norm_legit_no_training"] = batch_norm_no_training;
}

}  // namespace torchreel::graphs
