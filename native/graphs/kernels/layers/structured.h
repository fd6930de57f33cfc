// The base of the generated kernels for structured ops. Such an op has two halves in torch: meta() checks the
// arguments, requests outputs and mostly makes a TensorIterator; impl() computes. A kernel calls meta() once, when it
// is made, and impl() at each run.
#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/TensorMeta.h>
#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>

#include <exception>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "graphs/kernels/kernel.h"

namespace torchreel::graphs {

// Planned memory does not do for this call: the next layer takes it.
struct Unfit : std::exception {};

// The results of a call, as meta() asks for them.
class Outputs {
 public:
  explicit Outputs(const KernelCall& call);

  // Undefined before meta() requests it, unless the call gave it: then meta() does what it does in eager.
  const at::Tensor& get(int64_t index) const;
  // meta() requests an output like this. Throws Unfit if the planned result differs.
  void claim(int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides, const at::TensorOptions& options,
             bool strides_matter);
  // Where impl() writes.
  const at::Tensor& operator[](size_t index) const { return results_[index]; }

 private:
  std::vector<at::Tensor> results_;
  std::vector<bool> claimed_;
  bool given_;  // in place, or with out=
};

// Throws Unfit if meta() made a copy (in another dtype, for example) of values that change.
void check_operands(const KernelCall& call, at::ArrayRef<at::OperandInfo> operands);

// Arguments, as the kernel keeps them. The types are those of the op's schema.
at::Tensor tensor_in(const KernelCall& call, size_t index);  // undefined for None
std::vector<at::Tensor> tensors_in(const KernelCall& call, size_t index);
c10::List<std::optional<at::Tensor>> optional_tensors_in(const KernelCall& call, size_t index);
at::Scalar scalar_in(const KernelCall& call, size_t index);
std::optional<at::Scalar> optional_scalar_in(const KernelCall& call, size_t index);
int64_t int_in(const KernelCall& call, size_t index);
std::optional<int64_t> optional_int_in(const KernelCall& call, size_t index);
std::vector<int64_t> ints_in(const KernelCall& call, size_t index);
std::optional<std::vector<int64_t>> optional_ints_in(const KernelCall& call, size_t index);
double float_in(const KernelCall& call, size_t index);
std::optional<double> optional_float_in(const KernelCall& call, size_t index);
bool bool_in(const KernelCall& call, size_t index);
std::optional<bool> optional_bool_in(const KernelCall& call, size_t index);
at::ScalarType dtype_in(const KernelCall& call, size_t index);
std::optional<at::ScalarType> optional_dtype_in(const KernelCall& call, size_t index);
std::string text_in(const KernelCall& call, size_t index);
std::optional<std::string> optional_text_in(const KernelCall& call, size_t index);

// What the kernel keeps, as torch takes arguments: references to what the kernel owns.
inline at::OptionalTensorRef reference(const at::Tensor& tensor) {
  return tensor.defined() ? at::OptionalTensorRef(tensor) : at::OptionalTensorRef();
}
inline at::OptionalScalarRef reference(const std::optional<at::Scalar>& scalar) {
  return scalar.has_value() ? at::OptionalScalarRef(*scalar) : at::OptionalScalarRef();
}
inline at::OptionalIntArrayRef reference(const std::optional<std::vector<int64_t>>& ints) {
  return ints.has_value() ? at::OptionalIntArrayRef(*ints) : at::OptionalIntArrayRef();
}
inline std::optional<std::string_view> reference(const std::optional<std::string>& text) { return text; }
inline at::ITensorListRef reference(const std::vector<at::Tensor>& tensors) { return at::TensorList(tensors); }
inline at::IOptTensorListRef reference(const c10::List<std::optional<at::Tensor>>& tensors) { return tensors; }

// `Native` is torch's own class with both halves.
template <class Native>
class Structured : public Native, public Kernel {
 public:
  const char* layer() const final { return "structured"; }

  const at::Tensor& maybe_get_output(int64_t index) final { return outputs.get(index); }
  void set_output_strided(int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides,
                          at::TensorOptions options) final {
    outputs.claim(index, sizes, strides, options, true);
    if constexpr (kIterates) Native::set_output_raw_strided(index, sizes, strides, options);
  }
  void set_output_raw_strided(int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides,
                              at::TensorOptions options) final {
    outputs.claim(index, sizes, strides, options, false);
    if constexpr (kIterates) Native::set_output_raw_strided(index, sizes, strides, options);
  }

 protected:
  explicit Structured(const KernelCall& call) : outputs(call) {}

  // After meta().
  void check(const KernelCall& call) {
    if constexpr (kIterates) {
      check_operands(call, this->operands_);
      operands_made_ = this->operands_;
    }
  }

  // Before impl(): some kernels remove a scalar operand from their iterator, which eager drops after the call.
  void renew() {
    if constexpr (kIterates) {
      if (this->operands_.size() != operands_made_.size()) this->operands_ = operands_made_;
    }
  }

  Outputs outputs;

 private:
  static constexpr bool kIterates = std::is_base_of_v<at::TensorIteratorBase, Native>;
  c10::SmallVector<at::OperandInfo, 4> operands_made_;
};

template <class Op>
std::unique_ptr<Kernel> prepare_structured(const KernelCall& call) {
  try {
    return std::unique_ptr<Kernel>(new Op(call));
  } catch (const std::exception&) {
    return nullptr;  // if eager refuses the call, too, the next layer raises its error
  }
}

}  // namespace torchreel::graphs
