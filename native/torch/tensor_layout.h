// Where torch keeps the sizes, strides, offset and dtype of a tensor: in one row of words, which is read at each call.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace torchreel::graphs {

struct TensorLayout {
  static constexpr size_t kInline = C10_SIZES_AND_STRIDES_MAX_INLINE_SIZE;  // sizes; as many strides follow
  // From the first size, in words. The number of sizes is before it.
  static constexpr int kDim = -1;
  static constexpr size_t kStrides = kInline, kOffset = 2 * kInline, kType = kOffset + 2;

  // The first size; null where torch keeps this tensor's sizes elsewhere.
  static const int64_t* sizes_of(const c10::TensorImpl& tensor) {
    static const std::optional<ptrdiff_t> distance = find();
    const int64_t* sizes = tensor.sizes().data();
    bool known = distance == reinterpret_cast<const char*>(sizes) - reinterpret_cast<const char*>(&tensor);
    return known ? sizes : nullptr;
  }

 private:
  static std::optional<ptrdiff_t> find();
};

}  // namespace torchreel::graphs
