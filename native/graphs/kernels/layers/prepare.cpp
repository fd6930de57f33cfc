#include "graphs/kernels/layers/prepare.h"

#include <stdexcept>

#include "graphs/kernels/layers/boxed.h"
#include "graphs/kernels/layers/forwards.h"
#include "graphs/kernels/layers/out.h"

namespace torchreel::graphs {

namespace {

std::unique_ptr<Kernel> prepare_of(const Preparers& all, const KernelCall& call) {
  auto found = all.find(call.op->name);
  return found == all.end() ? nullptr : found->second(call);
}

// How many elements a mask picks is known only when it was computed.
bool has_mask(const KernelCall& call) {
  if (!call.op->varying) return false;
  for (const auto& value : call.arguments) {
    if (!value.isList()) continue;
    for (const auto& element : value.toListRef()) {
      if (!element.isTensor() || !element.toTensor().defined()) continue;
      auto type = element.toTensor().scalar_type();
      if (type == at::kBool || type == at::kByte) return true;
    }
  }
  return false;
}

std::unique_ptr<Kernel> prepare_structured_call(const KernelCall& call) {
  if (!is_dense_cpu(call.arguments) || has_mask(call)) return nullptr;
  auto other = forwarded(call);
  return prepare_of(structured_kernels(), other.has_value() ? *other : call);
}

}  // namespace

std::unique_ptr<Kernel> prepare_in(std::string_view layer, const KernelCall& call) {
  if (layer == "handwritten") return prepare_of(handwritten_kernels(), call);
  if (layer == "structured") return prepare_structured_call(call);
  if (layer == "out") return prepare_out(call);
  if (layer == "boxed") return prepare_boxed(call);
  throw std::invalid_argument("There is no layer of kernels called " + std::string(layer) +
                              ": it is one of handwritten, structured, out and boxed.");
}

std::vector<std::string> layers_of(const tape::OpInfo& op) {
  std::vector<std::string> layers;
  if (handwritten_kernels().count(op.name) != 0) layers.emplace_back("handwritten");
  if (structured_kernels().count(op.name) != 0) layers.emplace_back("structured");
  if (out_overloads().count(op.name) != 0) layers.emplace_back("out");
  layers.emplace_back("boxed");
  return layers;
}

std::unique_ptr<Kernel> prepare(const KernelCall& call) {
  for (std::string_view layer : kLayers) {
    if (auto kernel = prepare_in(layer, call)) return kernel;
  }
  throw std::runtime_error("The op " + call.op->name + " cannot be run on fixed memory.");
}

}  // namespace torchreel::graphs
