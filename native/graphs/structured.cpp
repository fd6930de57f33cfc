#include "structured.h"

#include <algorithm>

namespace torchreel::graphs {

namespace {

bool same_strides(at::IntArrayRef sizes, at::IntArrayRef wanted, at::IntArrayRef has) {
  for (size_t i = 0; i < sizes.size(); i++) {
    if (sizes[i] == 0) return true;
  }
  for (size_t i = 0; i < sizes.size(); i++) {
    if (sizes[i] != 1 && wanted[i] != has[i]) return false;
  }
  return true;
}

template <class Visit>
void each_tensor(const Bound& call, Visit visit) {
  for (size_t i = 0; i < call.arguments.size(); i++) {
    const auto& value = call.arguments[i];
    bool fixed = i < call.fixed.size() && call.fixed[i];
    if (value.isTensor()) {
      visit(value.toTensor(), fixed);
    } else if (value.isList()) {
      for (const auto& element : value.toListRef()) {
        if (element.isTensor()) visit(element.toTensor(), fixed);
      }
    }
  }
}

const void* storage_of(const at::TensorBase& tensor) {
  return tensor.has_storage() ? tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() : nullptr;
}

bool is_number(const at::TensorBase& tensor) { return tensor.unsafeGetTensorImpl()->is_wrapped_number(); }

// Whether the iterator reads what the call was given, and not a copy.
bool is_of_the_call(const Bound& call, const at::TensorBase& tensor) {
  bool found = false;
  const void* storage = storage_of(tensor);
  each_tensor(call, [&](const at::Tensor& argument, bool) {
    if (argument.defined() && storage_of(argument) == storage) found = true;
  });
  for (const auto& result : call.results) {
    if (result.defined() && storage_of(result) == storage) found = true;
  }
  return found;
}

bool is_fixed(const Bound& call, const at::TensorBase& tensor) {
  // Of a number that is no tensor of the call, meta() has made one: numbers are part of the graph.
  if (is_number(tensor) && !is_of_the_call(call, tensor)) return true;
  bool found = false;
  each_tensor(call, [&](const at::Tensor& argument, bool fixed) {
    if (fixed && argument.unsafeGetTensorImpl() == tensor.unsafeGetTensorImpl()) found = true;
  });
  return found;
}

}  // namespace

Outputs::Outputs(const Bound& call) : results_(call.results), claimed_(call.results.size(), false) {
  const auto& written = call.op->written;
  given_ = std::find(written.begin(), written.end(), true) != written.end();
}

const at::Tensor& Outputs::get(int64_t place) const {
  static const auto* none = new at::Tensor();
  return given_ || claimed_.at(place) ? results_.at(place) : *none;
}

void Outputs::claim(int64_t place, at::IntArrayRef sizes, at::IntArrayRef strides, const at::TensorOptions& options,
                    bool strides_matter) {
  const auto& result = results_.at(place);
  if (!result.defined() || result.sizes() != sizes ||
      result.scalar_type() != c10::typeMetaToScalarType(options.dtype())) {
    throw Unfit();
  }
  if (strides_matter || !given_) {
    if (strides.empty() && !sizes.empty()) {
      if (!result.is_contiguous()) throw Unfit();
    } else if (!same_strides(sizes, strides, result.strides())) {
      throw Unfit();
    }
  }
  claimed_[place] = true;
}

void check_operands(const Bound& call, at::ArrayRef<at::OperandInfo> operands) {
  for (const auto& operand : operands) {
    const auto& tensor = operand.tensor_base();
    if (!tensor.defined()) continue;
    const auto& original = operand.original_tensor_base();
    if (original.defined()) {
      if (operand.is_output || !is_fixed(call, original)) throw Unfit();
    } else if (!is_of_the_call(call, tensor) && !is_fixed(call, tensor)) {
      throw Unfit();
    }
  }
}

at::Tensor tensor_in(const Bound& call, size_t place) {
  const auto& value = call.arguments.at(place);
  return value.isTensor() ? value.toTensor() : at::Tensor();
}

std::vector<at::Tensor> tensors_in(const Bound& call, size_t place) {
  return call.arguments.at(place).toTensorVector();
}

c10::List<std::optional<at::Tensor>> optional_tensors_in(const Bound& call, size_t place) {
  c10::List<std::optional<at::Tensor>> list;
  for (const auto& element : call.arguments.at(place).toListRef()) {
    list.push_back(element.isTensor() ? std::optional(element.toTensor()) : std::nullopt);
  }
  return list;
}

at::Scalar scalar_in(const Bound& call, size_t place) { return call.arguments.at(place).toScalar(); }
int64_t int_in(const Bound& call, size_t place) { return call.arguments.at(place).toInt(); }
std::vector<int64_t> ints_in(const Bound& call, size_t place) { return call.arguments.at(place).toIntVector(); }
double float_in(const Bound& call, size_t place) { return call.arguments.at(place).toDouble(); }
bool bool_in(const Bound& call, size_t place) { return call.arguments.at(place).toBool(); }
at::ScalarType dtype_in(const Bound& call, size_t place) { return call.arguments.at(place).toScalarType(); }
std::string text_in(const Bound& call, size_t place) { return call.arguments.at(place).toStringRef(); }

namespace {

template <class Read>
auto optional_in(const Bound& call, size_t place, Read read) -> std::optional<decltype(read(call, place))> {
  if (call.arguments.at(place).isNone()) return std::nullopt;
  return read(call, place);
}

}  // namespace

std::optional<at::Scalar> optional_scalar_in(const Bound& call, size_t place) {
  return optional_in(call, place, scalar_in);
}
std::optional<int64_t> optional_int_in(const Bound& call, size_t place) { return optional_in(call, place, int_in); }
std::optional<std::vector<int64_t>> optional_ints_in(const Bound& call, size_t place) {
  return optional_in(call, place, ints_in);
}
std::optional<double> optional_float_in(const Bound& call, size_t place) { return optional_in(call, place, float_in); }
std::optional<bool> optional_bool_in(const Bound& call, size_t place) { return optional_in(call, place, bool_in); }
std::optional<at::ScalarType> optional_dtype_in(const Bound& call, size_t place) {
  return optional_in(call, place, dtype_in);
}
std::optional<std::string> optional_text_in(const Bound& call, size_t place) {
  return optional_in(call, place, text_in);
}

}  // namespace torchreel::graphs
