// Where the ops of a graph run: below autograd and autocast, whatever the caller has switched on.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace torchreel::graphs {

constexpr auto kAbove = c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset;

struct BelowAutograd {
  c10::impl::ExcludeDispatchKeyGuard guard{kAbove};
  c10::AutoGradMode grad{false};
};

}  // namespace torchreel::graphs
