// Losses whose ops prepare an iterator, or allocate, at each call.
#include <ATen/core/Reduction.h>
#include <ATen/native/BinaryOps.h>
#include <ATen/native/PointwiseOps.h>
#include <ATen/ops/empty.h>

#include "graphs/kernels/handwritten.h"
#include "graphs/kernels/reductions.h"

namespace torchreel::graphs {

namespace {

bool floats(at::ScalarType type, std::initializer_list<at::Tensor> tensors) {
  for (const auto& tensor : tensors) {
    if (tensor.scalar_type() != type || tensor.numel() == 0) return false;
  }
  return type == at::kFloat || type == at::kDouble;
}

std::unique_ptr<Kernel> mse_loss(const KernelCall& call) {
  auto input = tensor_at(call, 0), target = tensor_at(call, 1);
  const auto& result = call.results[0];
  int64_t reduction = call.arguments[2].toInt();
  if (reduction == at::Reduction::None || !floats(result.scalar_type(), {input, target})) return nullptr;
  auto iterator_into = [&](const at::Tensor& squares) {
    return at::TensorIterator(at::TensorIteratorConfig()
                                  .add_owned_output(squares)
                                  .add_owned_const_input(input)
                                  .add_owned_const_input(target)
                                  .build());
  };
  auto iterator = iterator_into({});
  at::Tensor squares = iterator.output();
  if (!may_keep(squares)) {
    squares = tensor_on_idle(call.idle, squares);
    if (!squares.defined()) return nullptr;
    iterator = iterator_into(squares);
  }
  Sum sum(result, squares, std::nullopt, false, reduction == at::Reduction::Mean ? squares.numel() : 0);
  return kernel_of("stub", [iterator = std::move(iterator), sum = std::move(sum)]() mutable {
    at::native::mse_stub(at::kCPU, iterator);
    sum.run();
  });
}

std::unique_ptr<Kernel> mse_loss_backward(const KernelCall& call) {
  auto gradient = tensor_at(call, 0), input = tensor_at(call, 1), target = tensor_at(call, 2);
  const auto& result = call.results[0];
  if (!floats(result.scalar_type(), {gradient, input, target})) return nullptr;
  auto iterator = at::TensorIterator(at::TensorIteratorConfig()
                                         .add_owned_output(result)
                                         .add_owned_const_input(input)
                                         .add_owned_const_input(target)
                                         .add_owned_const_input(gradient)
                                         .resize_outputs(false)
                                         .build());
  bool mean = call.arguments[3].toInt() == at::Reduction::Mean;
  at::Scalar norm = mean ? 2. / static_cast<double>(input.numel()) : 2.;
  return kernel_of("stub", [iterator = std::move(iterator), norm]() mutable {
    at::native::mse_backward_stub(at::kCPU, iterator, norm);
  });
}

}  // namespace

void add_losses(Preparers& table) {
  table["aten::mse_loss"] = mse_loss;
  table["aten::mse_loss_backward"] = mse_loss_backward;
}

}  // namespace torchreel::graphs
