// Where the ops of a graph run: below autograd and autocast, whatever the caller has switched on.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace torchreel::graphs {

constexpr auto kAbove = c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset;

struct BelowAutograd {
  c10::impl::ExcludeDispatchKeyGuard guard{kAbove};
  c10::AutoGradMode grad{false};
};

// A tensor on the same memory without autograd's keys; the tensor itself if it has no strided memory.
inline at::Tensor without_autograd(const at::Tensor& tensor) {
  if (tensor.layout() != c10::kStrided || !tensor.has_storage()) return tensor;
  auto* impl = tensor.unsafeGetTensorImpl();
  auto made = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(tensor.storage()),
                                                       impl->key_set() - kAbove, tensor.dtype());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  if (impl->is_wrapped_number()) made.unsafeGetTensorImpl()->set_wrapped_number(true);
  return made;
}

}  // namespace torchreel::graphs
