#include "modes.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace torchreel::graphs {

namespace {

constexpr uint64_t kGrad = 1, kInference = 2, kDeterministic = 4, kMkldnn = 8, kFunctionMode = 16, kSavedHooks = 32,
                   kNoFunction = 64, kFill = 128;
constexpr int kPrecision = 8;  // the first bit of it among the flags

}  // namespace

Modes Modes::now() {
  Modes modes;
  auto keys = c10::impl::tls_local_dispatch_key_set();
  modes.included = keys.included_;
  modes.excluded = keys.excluded_;
  auto& context = at::globalContext();
  auto set = [&](bool on, uint64_t flag) { modes.flags |= on ? flag : 0; };
  set(c10::GradMode::is_enabled(), kGrad);
  set(c10::InferenceMode::is_enabled(), kInference);
  set(context.deterministicAlgorithms(), kDeterministic);
  set(context.deterministicFillUninitializedMemory(), kFill);
  set(context.userEnabledMkldnn(), kMkldnn);
  auto precision = context.float32Precision(at::Float32Backend::MKLDNN, at::Float32Op::MATMUL);
  modes.flags |= static_cast<uint64_t>(precision) << kPrecision;
  set(at::impl::PythonTorchFunctionTLS::stack_len() > 0, kFunctionMode);
  set(at::impl::PythonTorchFunctionTLS::get_disabled_state() != at::impl::TorchFunctionDisabledState::ENABLED,
      kNoFunction);
  set(at::SavedTensorDefaultHooks::is_enabled() && at::SavedTensorDefaultHooks::get_hooks(true).has_value(),
      kSavedHooks);
  modes.threads = at::get_num_threads();
  if (modes.included.has(c10::DispatchKey::AutocastCPU)) modes.autocast = at::autocast::get_autocast_dtype(at::kCPU);
  modes.standard = c10::get_default_dtype_as_scalartype();
  return modes;
}

bool Modes::are_foreign() const {
  auto usual = c10::DispatchKeySet({c10::DispatchKey::BackendSelect, c10::DispatchKey::ADInplaceOrView}) |
               c10::autocast_dispatch_keyset;
  return !(included - usual).empty() || (flags & (kFunctionMode | kSavedHooks));
}

}  // namespace torchreel::graphs
