// Attention by torch's flash kernel, which writes its results to planned memory.
#include <ATen/native/transformers/attention.h>

#include <cstring>

#include "graphs/kernels/handwritten.h"

namespace torchreel::graphs {

namespace {

std::optional<double> scale_at(const KernelCall& call, size_t index) {
  if (call.arguments[index].isNone()) return std::nullopt;
  return call.arguments[index].toDouble();
}

std::optional<at::Tensor> mask_at(const KernelCall& call, size_t index) {
  auto mask = tensor_at(call, index);
  if (!mask.defined()) return std::nullopt;
  return mask;
}

// The kernel has heads in the third dimension, the op in the second.
std::unique_ptr<Kernel> attention(const KernelCall& call) {
  if (call.results.size() != 2) return nullptr;
  auto query = tensor_at(call, 0), key = tensor_at(call, 1), value = tensor_at(call, 2);
  if (query.dim() != 4 || query.numel() == 0 || key.numel() == 0) return nullptr;
  auto output = call.results[0].transpose(1, 2), logsumexp = call.results[1].transpose(1, 2);
  if (output.stride(3) != 1 || !is_dense(output) || !is_dense(logsumexp)) return nullptr;
  double dropout = call.arguments[3].toDouble();
  bool causal = call.arguments[4].toBool();
  auto mask = mask_at(call, 5);
  auto scale = scale_at(call, 6);
  if (dropout != 0) return nullptr;
  return kernel_of("stub", [=] {
    at::native::flash_attention_kernel(at::kCPU, output, logsumexp, query, key, value, dropout, causal, mask, scale);
  });
}

std::unique_ptr<Kernel> attention_backward(const KernelCall& call) {
  if (call.results.size() != 3) return nullptr;
  std::array<at::Tensor, 6> given;
  for (size_t i = 0; i < given.size(); i++) {
    given[i] = tensor_at(call, i);
    if (!given[i].defined() || given[i].numel() == 0) return nullptr;
    given[i] = given[i].transpose(1, 2);
  }
  if (given[0].dim() != 4) return nullptr;
  std::array<at::Tensor, 3> results;
  for (size_t i = 0; i < results.size(); i++) {
    if (!call.results[i].defined()) return nullptr;
    results[i] = call.results[i].transpose(1, 2);
    if (!is_contiguous(results[i])) return nullptr;
  }
  double dropout = call.arguments[6].toDouble();
  bool causal = call.arguments[7].toBool();
  auto mask = mask_at(call, 8);
  auto scale = scale_at(call, 9);
  if (dropout != 0) return nullptr;
  return kernel_of("stub", [=] {
    for (const auto& result : results)
      std::memset(result.mutable_data_ptr(), 0, result.nbytes());  // the kernel adds to them
    at::native::flash_attention_backward_kernel(at::kCPU, results[0], results[1], results[2], given[0], given[1],
                                                given[2], given[3], given[4], given[5], dropout, causal, mask, scale);
  });
}

}  // namespace

void add_attention(Preparers& table) {
  table["aten::_scaled_dot_product_flash_attention_for_cpu"] = attention;
  table["aten::_scaled_dot_product_flash_attention_for_cpu_backward"] = attention_backward;
}

}  // namespace torchreel::graphs
