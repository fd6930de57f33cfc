#include "graphs/guards/tensor_guards.h"

#include "torch/tensor_layout.h"

namespace torchreel::graphs {

void TensorGuards::add(const at::Tensor& tensor) {
  auto* impl = tensor.unsafeGetTensorImpl();
  auto& storage = *impl->unsafe_storage().unsafeGetStorageImpl();
  const auto* sizes = reinterpret_cast<const uint64_t*>(TensorLayout::sizes_of(*impl));
  if (sizes == nullptr) {
    others_.push_back({impl, &storage, c10::DimVector(impl->sizes()), c10::DimVector(impl->strides()),
                       impl->storage_offset(), storage._mutable_data_ptr_no_checks().get(), tensor.scalar_type()});
    return;
  }
  const auto* storage_pointer = reinterpret_cast<const uint64_t*>(&impl->unsafe_storage());
  const auto* data = reinterpret_cast<const uint64_t*>(&storage._mutable_data_ptr_no_checks());
  common_.push_back({storage_pointer, data, sizes, *storage_pointer, *data, sizes[TensorLayout::kDim], sizes[0],
                     sizes[TensorLayout::kStrides], sizes[TensorLayout::kOffset], sizes[TensorLayout::kType]});
  for (int64_t i = 1; i < impl->dim(); i++) {
    words_.push_back({sizes + i, sizes[i]});
    words_.push_back({sizes + TensorLayout::kStrides + i, sizes[TensorLayout::kStrides + i]});
  }
}

bool TensorGuards::hold() const {
  uint64_t differ = 0;
  for (const auto& one : common_) {
    differ |= (*one.storage ^ one.was_storage) | (*one.data ^ one.was_data) |
              (one.sizes[TensorLayout::kDim] ^ one.dim) | (one.sizes[0] ^ one.size) |
              (one.sizes[TensorLayout::kStrides] ^ one.stride) | (one.sizes[TensorLayout::kOffset] ^ one.offset) |
              (one.sizes[TensorLayout::kType] ^ one.type);
  }
  for (const auto& word : words_) differ |= *word.at ^ word.was;
  if (differ != 0) return false;
  for (const auto& other : others_) {
    auto* storage = other.tensor->unsafe_storage().unsafeGetStorageImpl();
    if (storage != other.storage || storage->_mutable_data_ptr_no_checks().get() != other.data ||
        other.tensor->sizes() != c10::IntArrayRef(other.sizes) ||
        other.tensor->strides() != c10::IntArrayRef(other.strides) || other.tensor->storage_offset() != other.offset ||
        c10::typeMetaToScalarType(other.tensor->dtype()) != other.dtype) {
      return false;
    }
  }
  return true;
}

}  // namespace torchreel::graphs
