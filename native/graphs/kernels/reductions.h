// Sums and means over fixed dimensions, with the bits of torch's own kernels.
#pragma once

#include <ATen/native/TensorIterator.h>

#include <functional>
#include <optional>

#include "graphs/kernels/kernel.h"

namespace torchreel::graphs {

class Sum {
 public:
  // Over all dimensions if none is given. The operand has the dtype of the result. With a divisor: the mean.
  Sum(const at::Tensor& result, const at::Tensor& source, at::OptionalIntArrayRef dimensions, bool keep,
      int64_t divisor = 0);
  void run();

 private:
  at::TensorIterator iterator_;
  at::Tensor result_;
  int64_t divisor_;
};

}  // namespace torchreel::graphs
