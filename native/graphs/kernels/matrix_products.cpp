// Products of two matrices (mm, addmm), as torch prepares them for BLAS, with all of the preparation done once.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <cstring>
#include <map>
#include <mutex>
#include <tuple>

#include "graphs/kernels/blas.h"
#include "graphs/kernels/copies.h"
#include "graphs/kernels/handwritten.h"

namespace torchreel::graphs {

namespace {

// The same product with a vector in place of the matrix of one row or one column.
template <class T>
Gemv<T> as_gemv(const Gemm<T>& gemm) {
  Gemv<T> gemv;
  gemv.alpha = gemm.alpha;
  gemv.beta = gemm.beta;
  gemv.y = gemm.c;
  if (gemm.n == 1) {
    gemv.trans = gemm.transa;
    gemv.rows = gemm.transa == 'n' ? gemm.m : gemm.k;
    gemv.columns = gemm.transa == 'n' ? gemm.k : gemm.m;
    gemv.a = gemm.a;
    gemv.lda = gemm.lda;
    gemv.x = gemm.b;
    gemv.incx = gemm.transb == 'n' ? 1 : gemm.ldb;
  } else {
    gemv.trans = gemm.transb == 'n' ? 't' : 'n';
    gemv.rows = gemm.transb == 'n' ? gemm.k : gemm.n;
    gemv.columns = gemm.transb == 'n' ? gemm.n : gemm.k;
    gemv.a = gemm.b;
    gemv.lda = gemm.ldb;
    gemv.x = gemm.a;
    gemv.incx = gemm.transa == 'n' ? gemm.lda : 1;
    gemv.incy = gemm.ldc;
  }
  return gemv;
}

constexpr int64_t kTrialElements = 1 << 16;  // in larger operands, the choice of the call does not change the time

// Elements from the first of an operand to its last.
int64_t span_of(char trans, int rows, int columns, int ld) { return int64_t{ld} * (trans == 'n' ? columns : rows); }

// Random numbers without torch's generator: to make a graph must not change what eager draws.
class Random {
 public:
  template <class T>
  at::Tensor tensor(int64_t count) {
    auto tensor = at::empty({count}, c10::CppTypeToScalarType<T>::value);
    T* numbers = tensor.template mutable_data_ptr<T>();
    for (int64_t i = 0; i < count; i++) {
      state_ = state_ * 6364136223846793005u + 1442695040888963407u;
      numbers[i] = static_cast<T>(static_cast<int32_t>(state_ >> 32)) / static_cast<T>(1 << 30);
    }
    return tensor;
  }

 private:
  uint64_t state_ = 0x9e3779b97f4a7c15;
};

template <class T>
bool gives_same_bits(const Gemm<T>& asked, int64_t a_span, int64_t b_span, int64_t c_span) {
  Random random;
  auto a = random.tensor<T>(a_span);
  auto b = random.tensor<T>(b_span);
  auto c = random.tensor<T>(c_span);
  auto other = at::empty_like(c);
  std::memcpy(other.mutable_data_ptr(), c.const_data_ptr(), c.nbytes());
  Gemm<T> gemm = asked;
  gemm.a = a.template const_data_ptr<T>();
  gemm.b = b.template const_data_ptr<T>();
  gemm.c = c.template mutable_data_ptr<T>();
  gemm.run();
  gemm.c = other.template mutable_data_ptr<T>();
  as_gemv(gemm).run();
  return std::memcmp(c.const_data_ptr(), other.const_data_ptr(), c.nbytes()) == 0;
}

// Whether gemv gives the same bits as gemm, with this BLAS, on this machine, for these sizes: tried on random numbers,
// once for each kind of call.
template <class T>
bool gemv_is_gemm(const Gemm<T>& asked) {
  if ((asked.m == 1) == (asked.n == 1)) return false;
  int64_t a_span = span_of(asked.transa, asked.m, asked.k, asked.lda);
  int64_t b_span = span_of(asked.transb, asked.k, asked.n, asked.ldb);
  int64_t c_span = int64_t{asked.ldc} * asked.n;
  if (a_span > kTrialElements || b_span > kTrialElements || c_span > kTrialElements) return false;
  using Key = std::tuple<char, char, int, int, int, int, int, int, T, T, int>;
  static std::mutex lock;
  static std::map<Key, bool> tried;
  Key key{asked.transa, asked.transb,         asked.m, asked.n, asked.k, asked.lda, asked.ldb, asked.ldc, asked.alpha,
          asked.beta,   at::get_num_threads()};
  std::lock_guard<std::mutex> guard(lock);
  auto found = tried.find(key);
  if (found != tried.end()) return found->second;
  bool same = gives_same_bits(asked, a_span, b_span, c_span);
  tried.emplace(key, same);
  return same;
}

// A matrix as BLAS can take it. A matrix with other strides is copied at each run.
struct Operand {
  at::Tensor tensor;
  char trans = 'n';
  int64_t ld = 0;
  Copy copy;
};

// `inner` is the dimension that is contiguous for BLAS if nothing is transposed; its size is `size`, that of the other
// dimension `other_size`. Without a tensor if the copy is too large to be kept.
Operand operand(const at::Tensor& matrix, int inner, int64_t size, int64_t other_size) {
  int outer = 1 - inner;
  if (matrix.stride(inner) == 1 && matrix.stride(outer) >= std::max<int64_t>(1, size)) {
    return {matrix, 'n', matrix.stride(outer), {}};
  }
  if (matrix.stride(outer) == 1 && matrix.stride(inner) >= std::max<int64_t>(1, other_size)) {
    return {matrix, 't', matrix.stride(inner), {}};
  }
  if (!may_keep(matrix)) return {};
  auto scratch = at::empty(matrix.sizes(), matrix.options());
  return {scratch, inner == 1 ? 'n' : 't', scratch.stride(0), Copy(scratch, matrix)};
}

// result = alpha * one @ other + beta * bias. If the bias is undefined, it is what is in the result already.
template <class T>
std::unique_ptr<Kernel> product(const at::Tensor& result, const at::Tensor& bias, const at::Tensor& one,
                                const at::Tensor& other, T beta, T alpha) {
  if (result.numel() == 0 || one.size(1) == 0) return nullptr;
  bool by_columns = result.stride(0) == 1 && (result.size(1) == 1 || result.stride(1) >= result.size(0));
  bool by_rows = result.stride(1) == 1 && (result.size(0) == 1 || result.stride(0) >= result.size(1));
  if (!by_columns && !by_rows) return nullptr;
  bool swapped = !by_columns;  // by rows, it is the transposed product of the transposed operands
  int inner = swapped ? 1 : 0;
  const auto &first = swapped ? other : one, &second = swapped ? one : other;
  int64_t m = result.size(inner), n = result.size(1 - inner), k = one.size(1);
  Gemm<T> gemm;
  Operand a = operand(first, inner, m, k), b = operand(second, inner, k, n);
  if (!a.tensor.defined() || !b.tensor.defined()) return nullptr;
  gemm.transa = a.trans;
  gemm.transb = b.trans;
  if (!set_sizes(gemm, m, n, k, a.ld, b.ld, result.stride(1 - inner))) return nullptr;
  gemm.alpha = alpha;
  gemm.beta = beta;
  gemm.a = a.tensor.template const_data_ptr<T>();
  gemm.b = b.tensor.template const_data_ptr<T>();
  gemm.c = result.template mutable_data_ptr<T>();
  Copy copy = beta != 0 && bias.defined() ? Copy(result, bias) : Copy();
  if (!a.copy.empty() || !b.copy.empty()) {
    return kernel_of("blas", [gemm, copy = std::move(copy), a = std::move(a), b = std::move(b)]() mutable {
      a.copy.run();
      b.copy.run();
      copy.run();
      gemm.run();
    });
  }
  if (gemv_is_gemm(gemm)) {
    return kernel_of("blas", [gemv = as_gemv(gemm), copy = std::move(copy)]() mutable {
      copy.run();
      gemv.run();
    });
  }
  return kernel_of("blas", [gemm, copy = std::move(copy)]() mutable {
    copy.run();
    gemm.run();
  });
}

std::unique_ptr<Kernel> product_of(const at::Tensor& result, const at::Tensor& bias, const at::Tensor& one,
                                   const at::Tensor& other, const at::Scalar& beta, const at::Scalar& alpha) {
  auto type = result.scalar_type();
  if (!only_blas() || !all_of_type(type, {one, other, bias.defined() ? bias : result})) return nullptr;
  if (type == at::kFloat) return product<float>(result, bias, one, other, beta.to<float>(), alpha.to<float>());
  if (type == at::kDouble) return product<double>(result, bias, one, other, beta.to<double>(), alpha.to<double>());
  return nullptr;
}

std::unique_ptr<Kernel> mm(const KernelCall& call) {
  return product_of(call.results[0], {}, tensor_at(call, 0), tensor_at(call, 1), 0, 1);
}

std::unique_ptr<Kernel> addmm(const KernelCall& call) {
  return product_of(call.results[0], tensor_at(call, 0), tensor_at(call, 1), tensor_at(call, 2),
                    call.arguments[3].toScalar(), call.arguments[4].toScalar());
}

std::unique_ptr<Kernel> addmm_in_place(const KernelCall& call) {
  return product_of(call.results[0], {}, tensor_at(call, 1), tensor_at(call, 2), call.arguments[3].toScalar(),
                    call.arguments[4].toScalar());
}

}  // namespace

void add_matrix_products(Preparers& table) {
  table["aten::mm"] = mm;
  table["aten::addmm"] = addmm;
  table["aten::addmm_"] = addmm_in_place;
}

}  // namespace torchreel::graphs
