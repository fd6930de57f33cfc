#include "tape/dispatch/fallback.h"

#include <ATen/core/Generator.h>
#include <torch/library.h>

#include <memory>

#include "tape/capture/capture.h"
#include "tape/dispatch/composites.h"
#include "tape/dispatch/wrappers.h"

namespace torchreel::tape {

__attribute__((weak)) void register_wrappers(torch::Library&) {}

namespace {

void note_range(const OpInfo& op, const torch::jit::Stack& stack) {
  const auto& name = stack[stack.size() - op.arguments];
  if (!name.isString()) return;
  auto& tape = *Capture::active();
  std::lock_guard lock(tape.mutex);
  tape.ranges.emplace_back(static_cast<uint32_t>(tape.ops.size()), name.toStringRef());
}

void record(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (!is_recording()) return handle.redispatchBoxed(below(keys), stack);
  const auto& op = info_of(handle);
  if (op.silent) {
    if (op.arguments > 0) note_range(op, *stack);
    return handle.redispatchBoxed(below(keys), stack);
  }
  // Autograd decomposes such ops before they get here. In inference mode they arrive whole.
  if (op.parts && !is_recorded_whole(handle)) return handle.redispatchBoxed(below(keys), stack);
  Call call(op);
  for (size_t i = stack->size() - op.arguments; i < stack->size(); i++) call.argument((*stack)[i]);
  {
    Below kernel(call);
    handle.redispatchBoxed(below(keys), stack);
  }
  call.results(c10::ArrayRef<c10::IValue>(stack->data() + stack->size() - op.results, op.results));
}

struct Registrations {
  std::unique_ptr<torch::Library> fallback, wrappers;
};

Registrations& registrations() {
  static auto* all = new Registrations();
  return *all;
}

int64_t seen(const at::Tensor& tensor) {
  auto digest = digest_of(tensor);
  TORCH_CHECK(digest.has_value(), "A tensor that was read outside of torch has no bytes to compare.");
  return static_cast<int64_t>(digest->hash);
}

void set_rng(at::Generator generator, const at::Tensor& state) {
  std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

at::Tensor get_rng(at::Generator generator) {
  std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

int64_t seed(at::Generator generator) {
  std::lock_guard lock(generator.mutex());
  return static_cast<int64_t>(generator.current_seed());
}

int64_t new_seed(at::Generator generator) {
  std::lock_guard lock(generator.mutex());
  return static_cast<int64_t>(generator.seed());
}

std::vector<at::Tensor> opaque(int64_t, at::TensorList) {
  TORCH_CHECK(false, "A compiled region can be run by the tape that recorded it, and by nothing else.");
}

}  // namespace

TORCH_LIBRARY(torchreel, library) {
  library.def("seen(Tensor tensor) -> int", &seen);
  library.def("set_rng(Generator? generator, Tensor state) -> ()", &set_rng);
  library.def("get_rng(Generator? generator) -> Tensor", &get_rng);
  library.def("seed(Generator? generator) -> int", &seed);
  library.def("new_seed(Generator? generator) -> int", &new_seed);
  library.def("opaque(int region, Tensor[] given) -> Tensor[]", &opaque);
}

void register_capture() {
  auto& all = registrations();
  if (all.fallback != nullptr) return;
  all.fallback = std::make_unique<torch::Library>(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
  all.fallback->fallback(torch::CppFunction::makeFromBoxedFunction<&record>());
  use_wrappers(true);
  register_composites();
}

void use_wrappers(bool on) {
  auto& all = registrations();
  if (!on) {
    all.wrappers.reset();
  } else if (all.wrappers == nullptr) {
    all.wrappers = std::make_unique<torch::Library>(torch::Library::IMPL, "aten", kKey, __FILE__, __LINE__);
    register_wrappers(*all.wrappers);
  }
}

}  // namespace torchreel::tape
