#include "tape/steps/collectives.h"

#include <Python.h>
#include <pybind11/pybind11.h>

#include <array>
#include <optional>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace torchreel::tape {

namespace {

constexpr std::string_view kPlain = "c10d::", kFunctional = "_c10d_functional::";
constexpr std::array kBetweenTwo = {"send", "recv_", "recv_any_source_", "isend", "irecv", "batch_p2p_ops"};

std::string_view without_namespace(std::string_view name) {
  if (name.starts_with(kPlain)) return name.substr(kPlain.size());
  if (name.starts_with(kFunctional)) return name.substr(kFunctional.size());
  return {};
}

void wait_for(const at::Tensor& tensor) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("_c10d_functional::wait_tensor", "")
                             .typed<at::Tensor(const at::Tensor&)>();
  if (tensor.defined()) op.call(tensor);
}

void wait_for(const torch::jit::Stack& results) {
  bool waited = false;
  for (const auto& result : results) {
    if (!result.isCustomClass()) continue;
    auto work = result.toCustomClass<c10d::Work>();
    if (work != nullptr) work->wait();
    waited = true;
  }
  if (waited) return;
  for (const auto& result : results) {  // of a functional collective, which does not return its work
    if (result.isTensor()) wait_for(result.toTensor());
    if (!result.isTensorList()) continue;
    for (const at::Tensor& tensor : result.toTensorVector()) wait_for(tensor);
  }
}

}  // namespace

bool is_between_two(std::string_view name) {
  auto base = without_namespace(name);
  for (const char* known : kBetweenTwo) {
    if (base == known) return true;
  }
  return false;
}

bool is_collective(std::string_view name) {
  auto base = without_namespace(name);
  return !base.empty() && !is_between_two(name) && base != "wait_tensor" && base != "check_for_nan" &&
         !base.starts_with("_wrap_tensor");
}

bool is_finished_by_waiting(std::string_view name) {
  return name == "c10d::_reduce_scatter_base_" || name == "c10d::reduce_scatter_tensor_coalesced_";
}

bool writes_first(std::string_view name) {
  return name.starts_with(kPlain) && name != "c10d::send" && name != "c10d::check_for_nan";
}

void run_collective(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  std::optional<pybind11::gil_scoped_release> released;
  if (PyGILState_Check()) released.emplace();
  op.callBoxed(stack);
  wait_for(*stack);
}

}  // namespace torchreel::tape
