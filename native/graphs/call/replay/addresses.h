// Storages and addresses of tensors without torch's checks. The other files of this folder ask for them at each call,
// for each parameter and each input: keep them inline.
#pragma once

#include <ATen/core/Tensor.h>

namespace torchreel::graphs {

inline const c10::StorageImpl* storage_impl(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

inline const void* data_of(const c10::StorageImpl& storage) {
  return const_cast<c10::StorageImpl&>(storage)._mutable_data_ptr_no_checks().get();
}

// Of a tensor that has memory. data() makes the one check that is left: whether the memory may be read at all.
inline const char* data_of(const at::Tensor& tensor) {
  auto* impl = tensor.unsafeGetTensorImpl();
  const auto* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  return static_cast<const char*>(storage->data()) + impl->storage_offset() * static_cast<int64_t>(impl->itemsize());
}

}  // namespace torchreel::graphs
