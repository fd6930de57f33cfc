#include "graphs/kernels/layers/forwards.h"

#include "tape/replay/numbers.h"

namespace torchreel::graphs {

namespace {

struct Forward {
  const char* op;
  const char* overload;
  void (*translate)(KernelCall& call);
};

// x + 1 becomes x + tensor(1), with the tensor marked as a number.
void number_second(KernelCall& call) {
  call.arguments[1] = tape::wrapped_number(call.arguments[1].toScalar());
  call.fixed[1] = true;
}

void at_least_zero(KernelCall& call) {
  call.arguments.emplace_back(0);
  call.fixed.push_back(false);
}

// sum(self, dtype) -> sum(self, dim, keepdim, dtype)
void over_all(KernelCall& call) {
  call.arguments = {call.arguments[0], c10::IValue(), false, call.arguments[1]};
  call.fixed = {call.fixed[0], false, false, false};
}

const std::unordered_map<std::string_view, Forward>& forwards() {
  static const auto* all = new std::unordered_map<std::string_view, Forward>{
      {"aten::relu", {"aten::clamp_min", "", at_least_zero}},
      {"aten::relu_", {"aten::clamp_min_", "", at_least_zero}},
      {"aten::add.Scalar", {"aten::add", "Tensor", number_second}},
      {"aten::add_.Scalar", {"aten::add_", "Tensor", number_second}},
      {"aten::sub.Scalar", {"aten::sub", "Tensor", number_second}},
      {"aten::sub_.Scalar", {"aten::sub_", "Tensor", number_second}},
      {"aten::mul.Scalar", {"aten::mul", "Tensor", number_second}},
      {"aten::mul_.Scalar", {"aten::mul_", "Tensor", number_second}},
      {"aten::div.Scalar", {"aten::div", "Tensor", number_second}},
      {"aten::div_.Scalar", {"aten::div_", "Tensor", number_second}},
      {"aten::div.Scalar_mode", {"aten::div", "Tensor_mode", number_second}},
      {"aten::div_.Scalar_mode", {"aten::div_", "Tensor_mode", number_second}},
      {"aten::sum", {"aten::sum", "dim_IntList", over_all}},
      {"aten::mean", {"aten::mean", "dim", over_all}},
  };
  return *all;
}

}  // namespace

std::optional<KernelCall> forwarded(const KernelCall& call) {
  auto found = forwards().find(call.op->name);
  if (found == forwards().end()) return std::nullopt;
  KernelCall other = call;
  other.fixed.resize(call.arguments.size(), false);
  found->second.translate(other);
  other.op = &tape::op_named(found->second.op, found->second.overload);
  if (other.arguments.size() != other.op->arguments) return std::nullopt;
  return other;
}

}  // namespace torchreel::graphs
