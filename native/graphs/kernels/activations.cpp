// Activations of a few numbers: torch's vectors and functions without the loops around them. Before a kernel is used, a
// trial compares its bits with those of torch's op, once for each size.
#include <ATen/Context.h>
#include <ATen/Version.h>
#include <ATen/native/Activation.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu_cpu_dispatch.h>
#include <ATen/ops/sigmoid_cpu_dispatch.h>
#include <ATen/ops/silu_cpu_dispatch.h>
#include <ATen/ops/tanh_cpu_dispatch.h>

#include <cmath>
#include <cstring>
#include <map>
#include <mutex>

#include "graphs/kernels/copies.h"
#include "graphs/kernels/handwritten.h"

#if defined(__x86_64__)
#include <immintrin.h>

extern "C" {
__attribute__((target("avx2,fma"))) __m256 Sleef_expf8_u10(__m256);
void vmsTanh(int, const float*, float*, int64_t);
}

namespace torchreel::graphs {

namespace {

#define TORCHREEL_VECTORS __attribute__((target("avx2,fma")))
#define TORCHREEL_INLINE __attribute__((target("avx2,fma"), always_inline)) static inline

using Vector = __m256;
constexpr int64_t kLanes = 8;
constexpr int64_t kMany = 1 << 14;

struct Sigmoid {
  TORCHREEL_INLINE Vector of(Vector x) {
    Vector one = _mm256_set1_ps(1);
    Vector e = Sleef_expf8_u10(_mm256_xor_ps(x, _mm256_set1_ps(-0.f)));
    return _mm256_div_ps(one, _mm256_add_ps(one, e));
  }
};

struct Silu {
  TORCHREEL_INLINE Vector of(Vector x) {
    Vector e = Sleef_expf8_u10(_mm256_xor_ps(x, _mm256_set1_ps(-0.f)));
    return _mm256_div_ps(x, _mm256_add_ps(_mm256_set1_ps(1), e));
  }
};

// Torch's gelu is oneDNN's: the error function by formula 7.1.26 of Abramowitz and Stegun, with an exponential that is
// a polynomial of degree five. The order of operations decides the bits.
struct Gelu {
  TORCHREEL_INLINE Vector polynomial(Vector x, const float* coefficients, int count) {
    Vector sum = _mm256_set1_ps(coefficients[count - 1]);
    for (int i = count - 2; i >= 0; i--) sum = _mm256_fmadd_ps(sum, x, _mm256_set1_ps(coefficients[i]));
    return sum;
  }

  // Zero below the logarithm of the smallest float.
  TORCHREEL_INLINE Vector exponential(Vector x) {
    static constexpr float kCoefficients[] = {1.f,           0x1.fffff6p-1f, 0x1.fffdc6p-2f,
                                              0x1.555a8p-3f, 0x1.573a1ap-5f, 0x1.0f9f9cp-7f};
    Vector smallest = _mm256_set1_ps(-0x1.5d58ap+6f);
    Vector small = _mm256_cmp_ps(x, smallest, _CMP_LT_OS);
    x = _mm256_max_ps(_mm256_min_ps(x, _mm256_set1_ps(0x1.62e43p+6f)), smallest);
    Vector scaled = _mm256_add_ps(_mm256_mul_ps(x, _mm256_set1_ps(0x1.715476p+0f)), _mm256_set1_ps(0.5f));
    Vector whole = _mm256_floor_ps(scaled);
    Vector rest = _mm256_fnmadd_ps(whole, _mm256_set1_ps(0x1.62e43p-1f), x);
    __m256i power = _mm256_cvtps_epi32(_mm256_sub_ps(whole, _mm256_set1_ps(1)));
    power = _mm256_slli_epi32(_mm256_add_epi32(power, _mm256_set1_epi32(127)), 23);
    Vector factor = _mm256_andnot_ps(small, _mm256_castsi256_ps(power));
    Vector y = _mm256_mul_ps(polynomial(rest, kCoefficients, 6), factor);
    return _mm256_mul_ps(y, _mm256_set1_ps(2));  // the exponent is one less: the largest would overflow
  }

  TORCHREEL_INLINE Vector of(Vector s) {
    static constexpr float kFormula[] = {0.254829592f, -0.284496736f, 1.421413741f, -1.453152027f, 1.061405429f};
    Vector sign_bit = _mm256_set1_ps(-0.f), one = _mm256_set1_ps(1);
    Vector x = _mm256_mul_ps(s, _mm256_set1_ps(0x1.6a09e6p-1f));
    Vector positive = _mm256_andnot_ps(sign_bit, x);
    Vector t = _mm256_div_ps(one, _mm256_fmadd_ps(_mm256_set1_ps(0.3275911f), positive, one));
    Vector e = _mm256_xor_ps(exponential(_mm256_xor_ps(_mm256_mul_ps(x, x), sign_bit)), sign_bit);
    Vector erf = _mm256_fmadd_ps(_mm256_mul_ps(e, t), polynomial(t, kFormula, 5), one);
    erf = _mm256_xor_ps(erf, _mm256_and_ps(s, sign_bit));
    Vector half = _mm256_mul_ps(s, _mm256_set1_ps(0.5f));
    return _mm256_fmadd_ps(erf, half, half);
  }
};

template <class Function>
TORCHREEL_VECTORS void apply(float* result, const float* numbers, int64_t count) {
  for (int64_t i = 0; i < count; i += kLanes) {
    _mm256_storeu_ps(result + i, Function::of(_mm256_loadu_ps(numbers + i)));
  }
}

struct Tanh {};

// MKL's, for all numbers at once, in the mode that torch uses: high accuracy, denormal numbers kept, errors ignored.
template <>
void apply<Tanh>(float* result, const float* numbers, int64_t count) {
  constexpr int64_t kAccurate = 2, kKeepDenormals = 0x140000, kIgnoreErrors = 0x100;
  vmsTanh(static_cast<int>(count), numbers, result, kAccurate | kKeepDenormals | kIgnoreErrors);
}

template <class Function>
at::Tensor torchs(const at::Tensor& tensor);
template <>
at::Tensor torchs<Sigmoid>(const at::Tensor& tensor) {
  return at::cpu::sigmoid(tensor);
}
template <>
at::Tensor torchs<Tanh>(const at::Tensor& tensor) {
  return at::cpu::tanh(tensor);
}
template <>
at::Tensor torchs<Silu>(const at::Tensor& tensor) {
  return at::cpu::silu(tensor);
}
template <>
at::Tensor torchs<Gelu>(const at::Tensor& tensor) {
  return at::cpu::gelu(tensor);
}

// Numbers of both signs, of all magnitudes at which these functions are not linear.
at::Tensor numbers(at::IntArrayRef sizes) {
  auto tensor = at::empty(sizes, at::kFloat);
  float* at = tensor.mutable_data_ptr<float>();
  uint64_t state = 88172645463325252u;  // not torch's generator: its state belongs to the user
  for (int64_t i = 0; i < tensor.numel(); i++) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    auto fraction = static_cast<float>(static_cast<int32_t>(state >> 32)) * 0x1p-31f;
    at[i] = std::ldexp(fraction, static_cast<int>(state % 17) - 8);
  }
  return tensor;
}

template <class Function>
bool gives_torchs(at::IntArrayRef sizes) {
  auto input = numbers(sizes), mine = at::empty(sizes, at::kFloat), expected = torchs<Function>(input);
  apply<Function>(mine.mutable_data_ptr<float>(), input.const_data_ptr<float>(), input.numel());
  return std::memcmp(mine.const_data_ptr(), expected.const_data_ptr(), mine.nbytes()) == 0;
}

// Tried for many numbers and for this size, which decides the code path of torch.
template <class Function>
bool same_bits(at::IntArrayRef sizes) {
  static std::mutex lock;
  static std::map<std::pair<std::vector<int64_t>, bool>, bool> tried;
  std::lock_guard<std::mutex> guard(lock);
  auto key = std::pair(sizes.vec(), at::globalContext().userEnabledMkldnn());
  auto found = tried.find(key);
  if (found != tried.end()) return found->second;
  bool same = gives_torchs<Function>({kMany}) && gives_torchs<Function>(sizes);
  tried.emplace(key, same);
  return same;
}

bool torch_uses_avx2() {
  static const bool uses = at::get_cpu_capability() == "AVX2";
  return uses;
}

template <class Function>
std::unique_ptr<Kernel> activation(const KernelCall& call, int64_t most) {
  auto input = tensor_at(call, 0);
  const auto& result = call.results[0];
  if (!torch_uses_avx2() || input.scalar_type() != at::kFloat || !same_layout(input, result)) return nullptr;
  // Torch's loops compute the elements after the last pair of vectors one by one, with other functions.
  if (!is_contiguous(input) || input.numel() == 0 || input.numel() % (2 * kLanes) != 0 || input.numel() > most) {
    return nullptr;
  }
  if (input.data_ptr() != result.data_ptr() && !apart(input, result)) return nullptr;
  if (!same_bits<Function>(input.sizes())) return nullptr;
  return kernel_of("loop", [to = result.mutable_data_ptr<float>(), from = input.const_data_ptr<float>(),
                            count = input.numel()] { apply<Function>(to, from, count); });
}

constexpr int64_t kFewForOneCall = 4096;
constexpr int64_t kMostForOneThread = 1 << 15;

template <class Function>
std::unique_ptr<Kernel> small(const KernelCall& call) {
  return activation<Function>(call, kFewForOneCall);
}

std::unique_ptr<Kernel> gelu(const KernelCall& call) {
  if (call.arguments[1].toStringRef() != "none") return nullptr;
  if (auto kernel = activation<Gelu>(call, kMostForOneThread)) return kernel;
  if (call.exact) return nullptr;
  auto input = tensor_at(call, 0);
  if (input.scalar_type() != at::kFloat || input.sizes() != call.results[0].sizes()) return nullptr;
  auto iterator = at::TensorIteratorConfig()
                      .add_owned_output(call.results[0])
                      .add_owned_const_input(input)
                      .resize_outputs(false)
                      .build();
  return kernel_of("stub", [iterator = at::TensorIterator(std::move(iterator))]() mutable {
    at::native::GeluKernel(at::kCPU, iterator, at::native::GeluType::None);
  });
}

}  // namespace

void add_activations(Preparers& table) {
  for (auto name : {"aten::sigmoid", "aten::sigmoid_"}) table[name] = small<Sigmoid>;
  for (auto name : {"aten::tanh", "aten::tanh_"}) table[name] = small<Tanh>;
  for (auto name : {"aten::silu", "aten::silu_"}) table[name] = small<Silu>;
  table["aten::gelu"] = gelu;
}

}  // namespace torchreel::graphs

#else

namespace torchreel::graphs {

void add_activations(Preparers&) {}

}  // namespace torchreel::graphs

#endif
