// Sums and means over dimensions that are known, as torch's own kernels give them.
#pragma once

#include <ATen/native/TensorIterator.h>

#include <functional>
#include <optional>

#include "graphs/kernels/kernel.h"

namespace torchreel::graphs {

class Sum {
 public:
  // Over all dimensions where none is given. What is summed has the result's type. With a divisor: the mean.
  Sum(const at::Tensor& result, const at::Tensor& source, at::OptionalIntArrayRef dimensions, bool keep,
      int64_t divisor = 0);
  void run();

 private:
  at::TensorIterator iterator_;
  at::Tensor result_;
  int64_t divisor_;
};

}  // namespace torchreel::graphs
