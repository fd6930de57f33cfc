#include "graphs/call/modes.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/AutogradState.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/DeviceType.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/anomaly_mode.h>

namespace torchreel::graphs {

namespace {

constexpr uint64_t kGrad = 1, kInference = 2, kDeterministic = 4, kMkldnn = 8, kFunctionMode = 16, kSavedHooks = 32,
                   kNoFunction = 64, kFill = 128, kAnomaly = 256, kWarnOnly = 512, kCudnn = 1024, kFlash = 2048,
                   kMathAttention = 4096, kEfficientAttention = 8192, kAutocastCache = 16384, kForwardGrad = 32768,
                   kPrivateDevice = 65536;
constexpr int kPrecision = 32;  // the first bit of it among the flags

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
  set(context.deterministicAlgorithmsWarnOnly(), kWarnOnly);
  set(context.userEnabledCuDNN(), kCudnn);
  set(context.userEnabledFlashSDP(), kFlash);
  set(context.userEnabledMathSDP(), kMathAttention);
  set(context.userEnabledMemEfficientSDP(), kEfficientAttention);
  set(at::autocast::is_autocast_cache_enabled(), kAutocastCache);
  set(c10::AutogradState::get_tls_state().get_fw_grad_mode(), kForwardGrad);
  set(torch::autograd::AnomalyMode::is_enabled(), kAnomaly);
  set(c10::is_privateuse1_backend_registered(), kPrivateDevice);  // its name is set once
  auto precision = context.float32Precision(at::Float32Backend::MKLDNN, at::Float32Op::MATMUL);
  modes.flags |= static_cast<uint64_t>(precision) << kPrecision;
  set(at::impl::PythonTorchFunctionTLS::stack_len() > 0, kFunctionMode);
  set(at::impl::PythonTorchFunctionTLS::get_disabled_state() != at::impl::TorchFunctionDisabledState::ENABLED,
      kNoFunction);
  set(at::SavedTensorDefaultHooks::is_enabled() && at::SavedTensorDefaultHooks::get_hooks(true).has_value(),
      kSavedHooks);
  modes.threads = at::get_num_threads();
  modes.autocast = at::autocast::get_autocast_dtype(at::kCPU);
  modes.standard = c10::get_default_dtype_as_scalartype();
  return modes;
}

bool Modes::are_foreign() const {
  auto usual = c10::DispatchKeySet({c10::DispatchKey::BackendSelect, c10::DispatchKey::ADInplaceOrView}) |
               c10::autocast_dispatch_keyset;
  return !(included - usual).empty() || (flags & (kFunctionMode | kSavedHooks | kAnomaly));
}

bool Modes::compute_as(const Modes& recorded) const {
  constexpr uint64_t kOfCalls =
      kGrad | kInference | kNoFunction | kAutocastCache | kForwardGrad | kSavedHooks | kFunctionMode;
  auto autocast_of = [](const Modes& modes) { return modes.excluded & c10::autocast_dispatch_keyset; };
  bool alike = (flags & ~kOfCalls) == (recorded.flags & ~kOfCalls) && autocast_of(*this) == autocast_of(recorded) &&
               threads == recorded.threads && standard == recorded.standard;
  bool casts = !excluded.has(c10::DispatchKey::AutocastCPU);
  return alike && (!casts || autocast == recorded.autocast);
}

}  // namespace torchreel::graphs
