// Ops over lists of tensors. On the CPU torch runs the op of each tensor, one after the other. So does this kernel,
// with each of them prepared.
#include <ATen/ScalarOps.h>

#include <string>

#include "graphs/kernels/handwritten.h"
#include "tape/replay/numbers.h"

namespace torchreel::graphs {

namespace {

// The op for each tensor, by the name of the op over lists.
struct Each {
  const char* name;
  const char* overload;
};

const std::unordered_map<std::string_view, Each>& each() {
  static const std::unordered_map<std::string_view, Each> table = [] {
    std::unordered_map<std::string_view, Each> all;
    static std::vector<std::string> names;  // the table's keys point to them
    names.reserve(256);
    auto add = [&](const std::string& list, const char* name, const char* overload) {
      names.push_back(list);
      all[names.back()] = {name, overload};
    };
    for (const char* suffix : {"", "_"}) {
      static std::vector<std::string> kept;
      kept.reserve(256);
      auto named = [&](const char* base) { return kept.emplace_back(std::string("aten::") + base + suffix).c_str(); };
      auto over = [&](const char* base) { return std::string("aten::_foreach_") + base + suffix; };
      for (const char* base : {"add", "sub", "mul", "div"}) {
        for (const char* kind : {".List", ".Scalar", ".ScalarList"}) add(over(base) + kind, named(base), "Tensor");
      }
      for (const char* base : {"mul", "div"}) add(over(base) + ".Tensor", named(base), "Tensor");
      for (const char* base : {"addcmul", "addcdiv"}) {
        for (const char* kind : {".Scalar", ".ScalarList"}) add(over(base) + kind, named(base), "");
      }
      add(over("lerp") + ".Scalar", named("lerp"), "Scalar");
      add(over("lerp") + ".List", named("lerp"), "Tensor");
      for (const char* base : {"sqrt", "neg", "reciprocal", "exp", "abs", "tanh", "sigmoid"}) {
        add(over(base), named(base), "");
      }
    }
    add("aten::_foreach_copy_", "aten::copy_", "");
    add("aten::_foreach_zero_", "aten::zero_", "");
    return all;
  }();
  return table;
}

// The argument for the op of one tensor that an argument of the op over lists stands for.
bool element(const at::IValue& value, size_t index, const c10::Argument& wanted, at::IValue& given) {
  if (value.isTensorList()) {
    given = value.toTensorList().get(index);
  } else if (value.isList()) {
    given = value.toListRef()[index].toScalar();
  } else {
    given = value;
  }
  if (wanted.type()->kind() == c10::TypeKind::TensorType && given.isScalar())
    given = tape::wrapped_number(given.toScalar());
  return (wanted.type()->kind() == c10::TypeKind::TensorType) == given.isTensor();
}

std::unique_ptr<Kernel> foreach (const KernelCall& call) {
  const auto& one = each().at(call.op->name);
  const auto& op = tape::op_named(one.name, one.overload);
  const auto& wanted = op.handle.schema().arguments();
  if (!call.arguments[0].isTensorList() || call.arguments.size() > wanted.size()) return nullptr;
  size_t count = call.arguments[0].toTensorList().size();
  if (call.results.size() != count) return nullptr;
  std::vector<std::unique_ptr<Kernel>> kernels;
  for (size_t i = 0; i < count; i++) {
    KernelCall single{&op, {}, {}, {call.results[i]}, call.grad, call.exact};
    for (size_t j = 0; j < wanted.size(); j++) {
      at::IValue given;
      if (j >= call.arguments.size()) {
        if (!wanted[j].default_value().has_value()) return nullptr;
        given = *wanted[j].default_value();
      } else if (!element(call.arguments[j], i, wanted[j], given)) {
        return nullptr;
      }
      single.fixed.push_back(given.isTensor() && given.toTensor().unsafeGetTensorImpl()->is_wrapped_number());
      single.arguments.push_back(std::move(given));
    }
    kernels.push_back(prepare(single));
  }
  return kernel_of("each", [kernels = std::move(kernels)] {
    for (const auto& kernel : kernels) kernel->run();
  });
}

}  // namespace

void add_foreach(Preparers& table) {
  for (const auto& [name, op] : each()) table[name] = foreach;
}

}  // namespace torchreel::graphs
