// A copy between two fixed addresses: of bytes if that is enough, else by torch's own kernel.
#pragma once

#include <ATen/native/TensorIterator.h>

#include <cstring>
#include <optional>

#include "graphs/kernels/kernel.h"

namespace torchreel::graphs {

class Copy {
 public:
  Copy() = default;  // copies nothing
  // Keeps both tensors. The source is broadcast to the target's sizes.
  Copy(const at::Tensor& target, const at::Tensor& source);

  bool empty() const { return rows_ == 0 && !iterator_; }

  void run() {
    if (rows_ == 1) {
      std::memcpy(target_, source_, bytes_);
    } else if (rows_ > 1) {
      run_rows();
    } else if (iterator_) {
      run_iterator();
    }
  }

 private:
  void run_rows();
  void run_iterator();

  char* target_ = nullptr;
  const char* source_ = nullptr;
  size_t bytes_ = 0;  // of a row
  int64_t rows_ = 0;  // 0 if bytes alone are not enough
  int64_t target_step_ = 0, source_step_ = 0;
  std::optional<at::TensorIterator> iterator_;
  at::Tensor kept_target_, kept_source_;
  bool large_ = false;
};

// Whether both have their elements in the same order, without gaps.
bool apart(const at::Tensor& one, const at::Tensor& other);

}  // namespace torchreel::graphs
