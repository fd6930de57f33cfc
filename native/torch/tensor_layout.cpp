#include "torch/tensor_layout.h"

#include <ATen/EmptyTensor.h>

#include <cstring>

namespace torchreel::graphs {

// Torch tells where its sizes are, not what lies around them: asked of a tensor whose numbers are all different.
std::optional<ptrdiff_t> TensorLayout::find() {
  auto tensor = at::detail::empty_cpu({256}, at::kByte);
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(c10::IntArrayRef({3, 7}), c10::IntArrayRef({11, 13}), 17);
  const int64_t* sizes = impl->sizes().data();
  auto distance = reinterpret_cast<const char*>(sizes) - reinterpret_cast<const char*>(impl);
  if (distance < 8 || distance + 8 * (kType + 1) > sizeof(c10::TensorImpl)) return std::nullopt;
  const auto& data = impl->unsafe_storage().data_ptr();
  auto type = impl->dtype();
  bool known = sizes[kDim] == 2 && sizes[1] == 7 && sizes[kStrides] == 11 && sizes[kStrides + 1] == 13 &&
               sizes[kOffset] == 17 && std::memcmp(sizes + kType, &type, sizeof type) == 0 &&
               *reinterpret_cast<void* const*>(&data) == data.get();
  return known ? std::optional(distance) : std::nullopt;
}

}  // namespace torchreel::graphs
