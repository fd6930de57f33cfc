// Tensors made of pieces: `cat`, and gradients that are zero except for a piece.

#include <cstring>

#include "graphs/kernels/copies.h"
#include "graphs/kernels/handwritten.h"

namespace torchreel::graphs {

namespace {

std::unique_ptr<Kernel> copies(std::vector<Copy> all) {
  return kernel_of("copy", [all = std::move(all)]() mutable {
    for (auto& copy : all) copy.run();
  });
}

// An input may lie in the output already: see graphs/plan/elide.h.
void add_copy(std::vector<Copy>& all, const at::Tensor& target, const at::Tensor& piece) {
  bool there = target.const_data_ptr() == piece.const_data_ptr() && target.scalar_type() == piece.scalar_type() &&
               is_contiguous(target) && is_contiguous(piece);
  if (!there) all.emplace_back(target, piece);
}

std::unique_ptr<Kernel> cat(const KernelCall& call) {
  const auto& result = call.results[0];
  int64_t dimension = call.arguments[1].toInt(), start = 0;
  if (dimension < 0) dimension += result.dim();
  if (dimension < 0 || dimension >= result.dim()) return nullptr;
  std::vector<Copy> all;
  for (const at::Tensor& piece : call.arguments[0].toTensorVector()) {
    if (piece.dim() == 1 && piece.size(0) == 0) continue;  // torch skips them, whatever the other inputs are
    if (piece.dim() != result.dim() || piece.is_complex() != result.is_complex()) return nullptr;
    auto target = result.narrow(dimension, start, piece.size(dimension));
    if (target.sizes() != piece.sizes()) return nullptr;
    add_copy(all, target, piece);
    start += piece.size(dimension);
  }
  return copies(std::move(all));
}

std::unique_ptr<Kernel> stack(const KernelCall& call) {
  const auto& result = call.results[0];
  int64_t dimension = call.arguments[1].toInt(), index = 0;
  if (dimension < 0) dimension += result.dim();
  if (dimension < 0 || dimension >= result.dim()) return nullptr;
  std::vector<Copy> all;
  for (const at::Tensor& piece : call.arguments[0].toTensorVector()) {
    auto target = result.select(dimension, index++);
    if (target.sizes() != piece.sizes() || piece.is_complex() != result.is_complex()) return nullptr;
    add_copy(all, target, piece);
  }
  return copies(std::move(all));
}

std::unique_ptr<Kernel> zero_but(const at::Tensor& result, const at::Tensor& piece, const at::Tensor& gradient) {
  if (!is_dense(result) || piece.sizes() != gradient.sizes() || piece.scalar_type() != gradient.scalar_type()) {
    return nullptr;
  }
  return kernel_of("copy", [copy = Copy(piece, gradient), result]() mutable {
    std::memset(result.mutable_data_ptr(), 0, result.nbytes());
    copy.run();
  });
}

std::unique_ptr<Kernel> slice_backward(const KernelCall& call) {
  const auto& result = call.results[0];
  if (result.numel() == 0) return nullptr;
  auto piece = result.slice(call.arguments[2].toInt(), call.arguments[3].toInt(), call.arguments[4].toInt(),
                            call.arguments[5].toInt());
  return zero_but(result, piece, tensor_at(call, 0));
}

std::unique_ptr<Kernel> select_backward(const KernelCall& call) {
  const auto& result = call.results[0];
  if (result.numel() == 0) return nullptr;
  auto piece = result.select(call.arguments[2].toInt(), call.arguments[3].toInt());
  return zero_but(result, piece, tensor_at(call, 0));
}

}  // namespace

void add_pieces(Preparers& table) {
  table["aten::cat"] = cat;
  table["aten::stack"] = stack;
  table["aten::slice_backward"] = slice_backward;
  table["aten::select_backward"] = select_backward;
}

}  // namespace torchreel::graphs
