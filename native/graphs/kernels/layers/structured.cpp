#include "graphs/kernels/layers/structured.h"

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
void each_tensor(const KernelCall& call, Visit visit) {
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

bool holds(const at::Tensor& tensor, const void* data) {
  if (!tensor.defined() || !tensor.has_storage()) return false;
  const auto& storage = tensor.unsafeGetTensorImpl()->unsafe_storage();
  const auto* begin = static_cast<const char*>(storage.data());
  return begin <= data && data < begin + storage.nbytes();
}

// Whether the iterator works on memory of the call, not on a copy.
bool is_of_the_call(const KernelCall& call, const void* data) {
  if (data == nullptr) return true;  // there are no elements
  bool found = false;
  each_tensor(call, [&](const at::Tensor& argument, bool) { found = found || holds(argument, data); });
  for (const auto& result : call.results) found = found || holds(result, data);
  return found;
}

// Whether a copy in the iterator is of values that never change. The original may be freed by now, so that only its
// address is known.
bool is_fixed(const KernelCall& call, const at::OperandInfo& operand) {
  const auto& copy = operand.tensor_base();
  const auto* original = operand.original_tensor_base().unsafeGetTensorImpl();
  bool of_constant = false;
  bool of_one_that_changes = false;
  each_tensor(call, [&](const at::Tensor& argument, bool fixed) {
    if (!argument.defined()) return;
    if (fixed && argument.unsafeGetTensorImpl() == original) of_constant = true;
    if (!fixed && argument.numel() == 1) of_one_that_changes = true;
  });
  // meta() makes a tensor without dimensions from a number. Numbers are constants of the graph.
  bool number = copy.unsafeGetTensorImpl()->is_wrapped_number();
  return of_constant || number || (copy.dim() == 0 && !of_one_that_changes);
}

}  // namespace

Outputs::Outputs(const KernelCall& call) : results_(call.results) {
  std::vector<at::Tensor> written;
  for (size_t i = 0; i < call.arguments.size(); i++) {
    if (call.op->written[i] && call.arguments[i].isTensor()) written.push_back(call.arguments[i].toTensor());
  }
  given_ = !written.empty();
  // The very same tensors: kernels see by that that they work in place.
  if (given_) results_ = std::move(written);
  claimed_.resize(results_.size());
}

const at::Tensor& Outputs::get(int64_t index) const {
  static const auto* none = new at::Tensor();
  return given_ || claimed_.at(index) ? results_.at(index) : *none;
}

void Outputs::claim(int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides, const at::TensorOptions& options,
                    bool strides_matter) {
  const auto& result = results_.at(index);
  if (!result.defined() || result.sizes() != sizes ||
      result.scalar_type() != c10::typeMetaToScalarType(options.dtype())) {
    throw Unfit();
  }
  if (strides_matter || !given_) {
    if (strides.empty()) {
      if (!result.is_contiguous(options.memory_format_opt().value_or(c10::MemoryFormat::Contiguous))) throw Unfit();
    } else if (!same_strides(sizes, strides, result.strides())) {
      throw Unfit();
    }
  }
  claimed_[index] = true;
}

void check_operands(const KernelCall& call, at::ArrayRef<at::OperandInfo> operands) {
  for (const auto& operand : operands) {
    if (operand.is_output && operand.original_tensor_base().defined()) throw Unfit();
    // An iterator may point to tensors that died with meta(), but not to their memory: it owns all memory that is not
    // of the call.
    if (!is_of_the_call(call, operand.data) && !is_fixed(call, operand)) throw Unfit();
  }
}

at::Tensor tensor_in(const KernelCall& call, size_t index) {
  const auto& value = call.arguments.at(index);
  return value.isTensor() ? value.toTensor() : at::Tensor();
}

std::vector<at::Tensor> tensors_in(const KernelCall& call, size_t index) {
  return call.arguments.at(index).toTensorVector();
}

c10::List<std::optional<at::Tensor>> optional_tensors_in(const KernelCall& call, size_t index) {
  c10::List<std::optional<at::Tensor>> list;
  for (const auto& element : call.arguments.at(index).toListRef()) {
    list.push_back(element.isTensor() ? std::optional(element.toTensor()) : std::nullopt);
  }
  return list;
}

at::Scalar scalar_in(const KernelCall& call, size_t index) { return call.arguments.at(index).toScalar(); }
int64_t int_in(const KernelCall& call, size_t index) { return call.arguments.at(index).toInt(); }
std::vector<int64_t> ints_in(const KernelCall& call, size_t index) { return call.arguments.at(index).toIntVector(); }
double float_in(const KernelCall& call, size_t index) { return call.arguments.at(index).toDouble(); }
bool bool_in(const KernelCall& call, size_t index) { return call.arguments.at(index).toBool(); }
at::ScalarType dtype_in(const KernelCall& call, size_t index) { return call.arguments.at(index).toScalarType(); }
std::string text_in(const KernelCall& call, size_t index) { return call.arguments.at(index).toStringRef(); }

namespace {

template <class Read>
auto optional_in(const KernelCall& call, size_t index, Read read) -> std::optional<decltype(read(call, index))> {
  if (call.arguments.at(index).isNone()) return std::nullopt;
  return read(call, index);
}

}  // namespace

std::optional<at::Scalar> optional_scalar_in(const KernelCall& call, size_t index) {
  return optional_in(call, index, scalar_in);
}
std::optional<int64_t> optional_int_in(const KernelCall& call, size_t index) {
  return optional_in(call, index, int_in);
}
std::optional<std::vector<int64_t>> optional_ints_in(const KernelCall& call, size_t index) {
  return optional_in(call, index, ints_in);
}
std::optional<double> optional_float_in(const KernelCall& call, size_t index) {
  return optional_in(call, index, float_in);
}
std::optional<bool> optional_bool_in(const KernelCall& call, size_t index) { return optional_in(call, index, bool_in); }
std::optional<at::ScalarType> optional_dtype_in(const KernelCall& call, size_t index) {
  return optional_in(call, index, dtype_in);
}
std::optional<std::string> optional_text_in(const KernelCall& call, size_t index) {
  return optional_in(call, index, text_in);
}

}  // namespace torchreel::graphs
