// Arithmetic on a few contiguous numbers, for which torch's own loops cost more than the computation. Only for ops
// whose result is exact; all others are left to torch.
#include <ATen/Version.h>
#include <ATen/native/TensorCompare.h>

#include "graphs/kernels/copies.h"
#include "graphs/kernels/handwritten.h"

namespace torchreel::graphs {

namespace {

constexpr int64_t kFew = 2048;  // with more there is nothing to gain

bool torch_uses_wide_vectors() {
  static const bool uses = [] {
    auto capability = at::get_cpu_capability();
    return capability == "AVX2" || capability == "AVX512";
  }();
  return uses;
}

// Vectorized, whatever the optimization level of the rest.
#if defined(__x86_64__)
#define TORCHREEL_WIDE __attribute__((target("avx2,fma"), optimize("O3")))
#else
#define TORCHREEL_WIDE
#endif

// An operand with as many elements as the result, or one number for all.
template <class T>
struct PointwiseOperand {
  const T* numbers = nullptr;
  bool single = false;
  T fixed = 0;  // if there are no numbers
};

struct Add {
  template <class T>
  __attribute__((always_inline)) static T of(T one, T other, T) {
    return one + other;
  }
};
struct Subtract {
  template <class T>
  __attribute__((always_inline)) static T of(T one, T other, T) {
    return one - other;
  }
};
// Contracted to a fused multiply-add if the function that it is inlined into may be: torch's is, and so must this be.
struct AddScaled {
  template <class T>
  __attribute__((always_inline)) static T of(T one, T other, T alpha) {
    return __builtin_fma(other, alpha, one);
  }
};
template <>
__attribute__((always_inline)) inline float AddScaled::of<float>(float one, float other, float alpha) {
  return __builtin_fmaf(other, alpha, one);
}
struct Multiply {
  template <class T>
  __attribute__((always_inline)) static T of(T one, T other, T) {
    return one * other;
  }
};
struct Divide {
  template <class T>
  __attribute__((always_inline)) static T of(T one, T other, T) {
    return one / other;
  }
};
struct AtLeast {
  template <class T>
  __attribute__((always_inline)) static T of(T one, T other, T) {
    return one < other ? other : one;
  }
};
// The gradient where the input was above the threshold.
struct Above {
  template <class T>
  __attribute__((always_inline)) static T of(T gradient, T input, T threshold) {
    return input <= threshold ? 0 : gradient;
  }
};

template <class T, class Op>
TORCHREEL_WIDE void loop(T* result, const T* one, const T* other, T extra, int64_t count) {
#pragma GCC ivdep  // if the result is an operand, they are the same element by element
  for (int64_t i = 0; i < count; i++) result[i] = Op::of(one[i], other[i], extra);
}

template <class T, class Op>
TORCHREEL_WIDE void loop_single(T* result, const T* one, T other, T extra, int64_t count) {
#pragma GCC ivdep  // if the result is an operand, they are the same element by element
  for (int64_t i = 0; i < count; i++) result[i] = Op::of(one[i], other, extra);
}

template <class T, class Op>
std::unique_ptr<Kernel> loops(const at::Tensor& result, const at::Tensor& one, PointwiseOperand<T> other, T extra) {
  auto* to = result.mutable_data_ptr<T>();
  const auto* from = one.const_data_ptr<T>();
  int64_t count = result.numel();
  if (other.numbers == nullptr) {
    return kernel_of("loop", [=, value = other.fixed] { loop_single<T, Op>(to, from, value, extra, count); });
  }
  if (other.single) {
    return kernel_of("loop", [=, value = other.numbers] { loop_single<T, Op>(to, from, *value, extra, count); });
  }
  return kernel_of("loop", [=, numbers = other.numbers] { loop<T, Op>(to, from, numbers, extra, count); });
}

bool few(const at::Tensor& result, const at::Tensor& one) {
  return torch_uses_wide_vectors() && result.numel() <= kFew && result.numel() > 0 && is_dense(result) &&
         is_dense(one) && same_layout(result, one) &&
         (one.is_same(result) || one.data_ptr() == result.data_ptr() || apart(one, result));
}

// The second operand, if the loops can take it.
template <class T>
bool second_operand(const KernelCall& call, size_t index, const at::Tensor& result, PointwiseOperand<T>& operand) {
  const auto& value = call.arguments[index];
  if (!value.isTensor()) return false;
  const auto& tensor = value.toTensor();
  if (!tensor.defined() || tensor.is_conj() || tensor.is_neg()) return false;
  bool wrapped = tensor.unsafeGetTensorImpl()->is_wrapped_number();
  if (tensor.dim() == 0 && wrapped && call.fixed[index] && !tensor.is_complex()) {
    operand.fixed = tensor.item().to<T>();
    return true;
  }
  if (tensor.scalar_type() != result.scalar_type()) return false;
  operand.numbers = tensor.const_data_ptr<T>();
  if (tensor.dim() == 0 && result.dim() > 0) {
    operand.single = true;
    return apart(tensor, result);
  }
  return is_dense(tensor) && same_layout(tensor, result) &&
         (tensor.data_ptr() == result.data_ptr() || apart(tensor, result));
}

template <class Op, class T>
std::unique_ptr<Kernel> binary(const KernelCall& call, T extra) {
  const auto& result = call.results[0];
  auto one = tensor_at(call, 0);
  PointwiseOperand<T> other;
  if (!one.defined() || !few(result, one) || !second_operand<T>(call, 1, result, other)) return nullptr;
  // Torch scales a number for all elements before it adds it, but only in the elements after its last vector.
  if (std::is_same_v<Op, AddScaled> && (other.single || other.numbers == nullptr)) return nullptr;
  return loops<T, Op>(result, one, other, extra);
}

template <class Op>
std::unique_ptr<Kernel> binary(const KernelCall& call) {
  auto type = call.results[0].scalar_type();
  if (type == at::kFloat) return binary<Op, float>(call, 0);
  if (type == at::kDouble) return binary<Op, double>(call, 0);
  return nullptr;
}

template <bool negative, class T>
std::unique_ptr<Kernel> sum(const KernelCall& call) {
  T alpha = call.arguments[2].toScalar().to<T>();
  if (alpha == 1) return negative ? binary<Subtract, T>(call, 0) : binary<Add, T>(call, 0);
  return binary<AddScaled, T>(call, negative ? -alpha : alpha);
}

template <bool negative>
std::unique_ptr<Kernel> sum(const KernelCall& call) {
  auto type = call.results[0].scalar_type();
  if (call.arguments[2].toScalar().isComplex()) return nullptr;
  if (type == at::kFloat) return sum<negative, float>(call);
  if (type == at::kDouble) return sum<negative, double>(call);
  return nullptr;
}

template <class T>
std::unique_ptr<Kernel> threshold_backward(const KernelCall& call) {
  const auto& result = call.results[0];
  auto gradient = tensor_at(call, 0);
  PointwiseOperand<T> input;
  if (!few(result, gradient) || !second_operand<T>(call, 1, result, input)) return nullptr;
  if (input.numbers == nullptr || input.single) return nullptr;
  return loops<T, Above>(result, gradient, input, call.arguments[2].toScalar().to<T>());
}

std::unique_ptr<Kernel> threshold_backward(const KernelCall& call) {
  auto type = call.results[0].scalar_type();
  if (type == at::kFloat) return threshold_backward<float>(call);
  if (type == at::kDouble) return threshold_backward<double>(call);
  return nullptr;
}

// Torch's relu is a clamp at zero.
std::unique_ptr<Kernel> relu(const KernelCall& call) {
  const auto& result = call.results[0];
  auto input = tensor_at(call, 0);
  auto type = result.scalar_type();
  if (input.scalar_type() != type || input.is_quantized() || input.sizes() != result.sizes()) return nullptr;
  if (few(result, input) && type == at::kFloat) return loops<float, AtLeast>(result, input, {}, 0);
  if (few(result, input) && type == at::kDouble) return loops<double, AtLeast>(result, input, {}, 0);
  auto iterator = at::TensorIteratorConfig()
                      .set_check_mem_overlap(false)
                      .add_owned_output(result)
                      .add_owned_const_input(input)
                      .resize_outputs(false)
                      .build();
  return kernel_of("stub", [iterator = at::TensorIterator(std::move(iterator)), zero = at::Scalar(0)]() mutable {
    at::native::clamp_min_scalar_stub(at::kCPU, iterator, zero);
  });
}

}  // namespace

void add_pointwise(Preparers& table) {
  for (auto name : {"aten::relu", "aten::relu_"}) table[name] = relu;
  for (auto name : {"aten::add.Tensor", "aten::add_.Tensor"}) table[name] = sum<false>;
  for (auto name : {"aten::sub.Tensor", "aten::sub_.Tensor"}) table[name] = sum<true>;
  for (auto name : {"aten::mul.Tensor", "aten::mul_.Tensor"}) table[name] = binary<Multiply>;
  for (auto name : {"aten::div.Tensor", "aten::div_.Tensor"}) table[name] = binary<Divide>;
  table["aten::threshold_backward"] = threshold_backward;
}

}  // namespace torchreel::graphs
