#include "tape/dispatch/composites.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <torch/library.h>

#include <array>
#include <mutex>
#include <unordered_map>

#include "tape/capture/capture.h"

namespace torchreel::tape {

namespace {

constexpr auto kAutograd = c10::DispatchKey::AutogradCPU;

// They write memory without an op: on a tape of their parts, nothing would compute the results.
constexpr std::array kWhole = {
    "max_pool1d",
    "_sobol_engine_draw",
    "_sobol_engine_ff_",
    "_sobol_engine_initialize_state_",
    "_sobol_engine_scramble_",
    "choose_qparams_optimized",
    "fbgemm_linear_fp16_weight",
    "fbgemm_linear_fp16_weight_fp32_activation",
    "fbgemm_linear_int8_weight",
    "fbgemm_linear_int8_weight_fp32_activation",
    "fbgemm_linear_quantize_weight",
    "fbgemm_pack_gemm_matrix_fp16",
    "fbgemm_pack_quantized_matrix",
    "fbgemm_pack_quantized_matrix.KN",
};

// They read lengths or indices from these arguments, and go on with the numbers.
struct Reads {
  const char* op;
  std::array<int, 2> arguments;  // -1 for none
};
constexpr std::array<Reads, 7> kReads = {{
    {"tensor_split.tensor_indices_or_sections", {1, -1}},
    {"ctc_loss.Tensor", {2, 3}},
    {"_pad_packed_sequence", {1, -1}},
    {"lstm.data", {1, -1}},
    {"gru.data", {1, -1}},
    {"rnn_tanh.data", {1, -1}},
    {"rnn_relu.data", {1, -1}},
}};

// The kernel that torch would have called.
void call_parts(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  static std::mutex mutex;
  static auto* kernels = new std::unordered_map<const void*, c10::SafeKernelFunction>();
  const c10::SafeKernelFunction* kernel = nullptr;
  {
    std::lock_guard lock(mutex);
    auto known = kernels->find(&op.schema());
    if (known == kernels->end()) {
      known = kernels->emplace(&op.schema(), op.getComputedKernelForDispatchKey(c10::DispatchKey::CPU)).first;
    }
    kernel = &known->second;
  }
  kernel->callBoxed(op, keys, stack);
}

bool needs_gradient(c10::ArrayRef<c10::IValue> arguments) {
  if (!at::GradMode::is_enabled()) return false;
  for (const auto& value : arguments) {
    if (value.isTensor() && value.toTensor().defined() && value.toTensor().requires_grad()) return true;
  }
  return false;
}

bool is_followed() {
  return is_recording() && c10::impl::tls_is_dispatch_key_included(kKey) &&
         !c10::impl::tls_is_dispatch_key_excluded(kKey);
}

void whole(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  size_t count = op.schema().arguments().size();
  auto arguments = c10::ArrayRef<c10::IValue>(stack->data() + stack->size() - count, count);
  // If a gradient is needed, torch calls other ops, which the tape sees.
  if (!is_followed() || needs_gradient(arguments)) return call_parts(op, keys, stack);
  at::AutoDispatchBelowADInplaceOrView guard;
  op.callBoxed(stack);
}

void reads(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (!is_followed()) return call_parts(op, keys, stack);
  auto name = c10::toString(op.operator_name());
  size_t first = stack->size() - op.schema().arguments().size();
  for (const auto& known : kReads) {
    if (name != std::string("aten::") + known.op) continue;
    for (int index : known.arguments) {
      if (index < 0 || !(*stack)[first + index].isTensor()) continue;
      const auto& tensor = (*stack)[first + index].toTensor();
      if (tensor.defined()) Capture::active()->seen(tensor);
    }
  }
  call_parts(op, keys, stack);
}

}  // namespace

bool is_recorded_whole(const c10::OperatorHandle& op) {
  auto name = c10::toString(op.operator_name());
  for (const char* known : kWhole) {
    if (name == std::string("aten::") + known) return true;
  }
  for (const auto& known : kReads) {
    if (name == std::string("aten::") + known.op) return true;
  }
  return false;
}

void register_composites() {
  static torch::Library* library = nullptr;
  if (library != nullptr) return;
  library = new torch::Library(torch::Library::IMPL, "aten", kAutograd, __FILE__, __LINE__);
  for (const char* name : kWhole) library->impl(name, torch::CppFunction::makeFromBoxedFunction<&whole>());
  for (const auto& known : kReads) library->impl(known.op, torch::CppFunction::makeFromBoxedFunction<&reads>());
}

}  // namespace torchreel::tape
