// Matrix products, as torch prepares them for BLAS, with all of the preparation done once.
#include "graphs/kernels/blas.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <tuple>

#include "graphs/kernels/copies.h"
#include "graphs/kernels/handwritten.h"

extern "C" {
void sgemv_(const char*, const int*, const int*, const float*, const float*, const int*, const float*, const int*,
            const float*, float*, const int*);
void dgemv_(const char*, const int*, const int*, const double*, const double*, const int*, const double*, const int*,
            const double*, double*, const int*);
void sgemm_batch_(const char*, const char*, const int*, const int*, const int*, const float*, const float* const*,
                  const int*, const float* const*, const int*, const float*, float* const*, const int*, const int*,
                  const int*);
void dgemm_batch_(const char*, const char*, const int*, const int*, const int*, const double*, const double* const*,
                  const int*, const double* const*, const int*, const double*, double* const*, const int*, const int*,
                  const int*);
}

namespace torchreel::graphs {

namespace {

// y = alpha * op(A)[rows, columns] * x + beta * y
template <class T>
struct Gemv {
  char trans = 'n';
  int rows = 0, columns = 0, lda = 0, incx = 1, incy = 1;
  T alpha = 1, beta = 0;
  const T *a = nullptr, *x = nullptr;
  T* y = nullptr;

  void run() const {
    if constexpr (std::is_same_v<T, float>) {
      sgemv_(&trans, &rows, &columns, &alpha, a, &lda, x, &incx, &beta, y, &incy);
    } else {
      dgemv_(&trans, &rows, &columns, &alpha, a, &lda, x, &incx, &beta, y, &incy);
    }
  }
};

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

constexpr int64_t kTrialElements = 1 << 16;  // beyond it the difference between the two calls is no part of the time

// Memory of an operand: its columns at their distance.
int64_t span_of(char trans, int rows, int columns, int ld) { return int64_t{ld} * (trans == 'n' ? columns : rows); }

// Whether this BLAS, on this machine, with these sizes, gives the same bits by gemv: tried on random numbers.
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
  // Not torch's generator: a graph that is made must not change what eager draws.
  uint64_t state = 0x9e3779b97f4a7c15;
  auto random = [&](int64_t count) {
    auto tensor = at::empty({count}, c10::CppTypeToScalarType<T>::value);
    T* numbers = tensor.template mutable_data_ptr<T>();
    for (int64_t i = 0; i < count; i++) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      numbers[i] = static_cast<T>(static_cast<int32_t>(state >> 32)) / static_cast<T>(1 << 30);
    }
    return tensor;
  };
  auto a = random(a_span), b = random(b_span), c = random(c_span), other = at::empty_like(c);
  std::memcpy(other.mutable_data_ptr(), c.const_data_ptr(), c.nbytes());
  Gemm<T> gemm = asked;
  gemm.a = a.template const_data_ptr<T>();
  gemm.b = b.template const_data_ptr<T>();
  gemm.c = c.template mutable_data_ptr<T>();
  gemm.run();
  gemm.c = other.template mutable_data_ptr<T>();
  as_gemv(gemm).run();
  bool same = std::memcmp(c.const_data_ptr(), other.const_data_ptr(), c.nbytes()) == 0;
  tried.emplace(key, same);
  return same;
}

// A matrix as BLAS can take it; copied at each run where its strides are of no kind that BLAS knows.
struct Operand {
  at::Tensor tensor;
  char trans = 'n';
  int64_t ld = 0;
  Copy copy;
};

// `inner` is the dimension that BLAS would find contiguous if nothing were transposed; its size is `size`, that of the
// other `other_size`. Without a tensor where the copy would be too large to be kept.
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

// Products of floats may be computed in less than float, by other libraries, where a user allowed it.
bool only_blas() { return at::globalContext().float32MatmulPrecision() == at::Float32MatmulPrecision::HIGHEST; }

bool plain(const at::Tensor& tensor) { return !tensor.is_conj() && !tensor.is_neg(); }

bool all_of_type(at::ScalarType type, std::initializer_list<at::Tensor> tensors) {
  for (const auto& tensor : tensors) {
    if (tensor.scalar_type() != type || !plain(tensor)) return false;
  }
  return true;
}

// result = alpha * one @ other + beta * bias; an undefined bias: what is in the result already.
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

template <class T>
std::unique_ptr<Kernel> vector_product(const at::Tensor& result, const at::Tensor& bias, const at::Tensor& matrix,
                                       const at::Tensor& vector, T beta, T alpha) {
  if (matrix.numel() == 0 || vector.stride(0) < 1 || result.stride(0) < 1) return nullptr;
  if (!fits(matrix.numel()) || !fits(matrix.stride(0)) || !fits(matrix.stride(1))) return nullptr;
  int64_t rows = matrix.size(0), columns = matrix.size(1);
  Gemv<T> gemv;
  if (matrix.stride(0) == 1 && (columns == 1 || matrix.stride(1) >= rows)) {
    gemv.trans = 'n';
    gemv.rows = static_cast<int>(rows);
    gemv.columns = static_cast<int>(columns);
    gemv.lda = static_cast<int>(matrix.stride(1));
  } else if (matrix.stride(1) == 1 && (rows == 1 || matrix.stride(0) >= columns)) {
    gemv.trans = 't';
    gemv.rows = static_cast<int>(columns);
    gemv.columns = static_cast<int>(rows);
    gemv.lda = static_cast<int>(matrix.stride(0));
  } else {
    return nullptr;
  }
  if (gemv.columns == 1) gemv.lda = gemv.rows;
  if (gemv.lda < gemv.rows) return nullptr;
  gemv.alpha = alpha;
  gemv.beta = beta;
  gemv.a = matrix.template const_data_ptr<T>();
  gemv.x = vector.template const_data_ptr<T>();
  gemv.y = result.template mutable_data_ptr<T>();
  gemv.incx = static_cast<int>(vector.stride(0));
  gemv.incy = static_cast<int>(result.stride(0));
  Copy copy = beta != 0 && bias.defined() ? Copy(result, bias) : Copy();
  return kernel_of("blas", [gemv, copy = std::move(copy)]() mutable {
    copy.run();
    gemv.run();
  });
}

std::unique_ptr<Kernel> vector_product_of(const at::Tensor& result, const at::Tensor& bias, const at::Tensor& matrix,
                                          const at::Tensor& vector, const at::Scalar& beta, const at::Scalar& alpha) {
  auto type = result.scalar_type();
  if (!only_blas() || !all_of_type(type, {matrix, vector, bias.defined() ? bias : result})) return nullptr;
  if (type == at::kFloat)
    return vector_product<float>(result, bias, matrix, vector, beta.to<float>(), alpha.to<float>());
  if (type == at::kDouble) {
    return vector_product<double>(result, bias, matrix, vector, beta.to<double>(), alpha.to<double>());
  }
  return nullptr;
}

std::unique_ptr<Kernel> mv(const KernelCall& call) {
  return vector_product_of(call.results[0], {}, tensor_at(call, 0), tensor_at(call, 1), 0, 1);
}

std::unique_ptr<Kernel> addmv(const KernelCall& call) {
  return vector_product_of(call.results[0], tensor_at(call, 0), tensor_at(call, 1), tensor_at(call, 2),
                           call.arguments[3].toScalar(), call.arguments[4].toScalar());
}

constexpr int64_t kLoopsBelow = 400;  // torch multiplies matrices of fewer multiplications by plain loops

// In the order of torch's loops: what is added to what decides the bits.
template <class T>
struct Loops {
  const T *one, *other;
  T* result;
  std::array<int64_t, 3> one_strides, other_strides, result_strides;
  int64_t batches, rows, columns, depth;
  T beta, alpha;
  bool adds;

  void run() const {
    for (int64_t batch = 0; batch < batches; batch++) {
      for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < columns; j++) {
          const T* left = one + batch * one_strides[0] + i * one_strides[1];
          const T* right = other + batch * other_strides[0] + j * other_strides[2];
          T sum = 0;
          for (int64_t k = 0; k < depth; k++) sum += left[k * one_strides[2]] * right[k * other_strides[1]];
          T& element = result[batch * result_strides[0] + i * result_strides[1] + j * result_strides[2]];
          if (!adds) {
            element = sum;
          } else if (beta == 0) {
            element = alpha * sum;
          } else {
            element = element * beta + alpha * sum;
          }
        }
      }
    }
  }
};

std::array<int64_t, 3> three(at::IntArrayRef values) { return {values[0], values[1], values[2]}; }

template <class T>
Loops<T> loops(const at::Tensor& result, const at::Tensor& one, const at::Tensor& other, T beta, T alpha, bool adds) {
  return {one.const_data_ptr<T>(),
          other.const_data_ptr<T>(),
          result.mutable_data_ptr<T>(),
          three(one.strides()),
          three(other.strides()),
          three(result.strides()),
          result.size(0),
          result.size(1),
          result.size(2),
          one.size(2),
          beta,
          alpha,
          adds};
}

// The same product on each of many matrices.
template <class T>
struct Batch {
  Gemm<T> gemm;
  std::vector<const T*> a, b;
  std::vector<T*> c;

  void run() const {
    int groups = 1, count = static_cast<int>(a.size());
    if constexpr (std::is_same_v<T, float>) {
      sgemm_batch_(&gemm.transa, &gemm.transb, &gemm.m, &gemm.n, &gemm.k, &gemm.alpha, a.data(), &gemm.lda, b.data(),
                   &gemm.ldb, &gemm.beta, c.data(), &gemm.ldc, &groups, &count);
    } else {
      dgemm_batch_(&gemm.transa, &gemm.transb, &gemm.m, &gemm.n, &gemm.k, &gemm.alpha, a.data(), &gemm.lda, b.data(),
                   &gemm.ldb, &gemm.beta, c.data(), &gemm.ldc, &groups, &count);
    }
  }
};

bool rows_or_columns(const at::Tensor& matrices) {
  return (matrices.stride(2) == 1 && matrices.stride(1) >= matrices.size(2)) ||
         (matrices.stride(1) == 1 && matrices.stride(2) >= matrices.size(1));
}

bool by_columns(const at::Tensor& matrices) {
  return matrices.stride(1) == 1 && matrices.stride(2) >= matrices.size(1);
}

template <class T>
std::unique_ptr<Kernel> batched(const at::Tensor& result, const at::Tensor& bias, const at::Tensor& one,
                                const at::Tensor& other, T beta, T alpha, bool adds) {
  if (result.numel() == 0 || one.size(2) == 0) return nullptr;
  Copy copy = bias.defined() ? Copy(result, bias) : Copy();
  if (one.size(2) * result.size(1) * result.size(2) < kLoopsBelow) {
    return kernel_of("loops",
                     [loops = loops<T>(result, one, other, beta, alpha, adds), copy = std::move(copy)]() mutable {
                       copy.run();
                       loops.run();
                     });
  }
  if (!result.is_contiguous() || !rows_or_columns(one) || !rows_or_columns(other)) return nullptr;
  Batch<T> batch;
  auto& gemm = batch.gemm;
  bool ta = by_columns(other), tb = by_columns(one);
  gemm.transa = ta ? 't' : 'n';
  gemm.transb = tb ? 't' : 'n';
  if (!set_sizes(gemm, result.size(2), result.size(1), one.size(2), other.stride(ta ? 2 : 1), one.stride(tb ? 2 : 1),
                 result.stride(1))) {
    return nullptr;
  }
  gemm.alpha = alpha;
  gemm.beta = beta;
  gemm.a = other.const_data_ptr<T>();
  gemm.b = one.const_data_ptr<T>();
  gemm.c = result.mutable_data_ptr<T>();
  if (result.size(0) == 1) {
    return kernel_of("blas", [gemm, copy = std::move(copy)]() mutable {
      copy.run();
      gemm.run();
    });
  }
  for (int64_t i = 0; i < result.size(0); i++) {
    batch.a.push_back(gemm.a + i * other.stride(0));
    batch.b.push_back(gemm.b + i * one.stride(0));
    batch.c.push_back(gemm.c + i * result.stride(0));
  }
  return kernel_of("blas", [batch = std::move(batch), copy = std::move(copy)]() mutable {
    copy.run();
    batch.run();
  });
}

std::unique_ptr<Kernel> batched_of(const at::Tensor& result, const at::Tensor& bias, const at::Tensor& one,
                                   const at::Tensor& other, const at::Scalar& beta, const at::Scalar& alpha,
                                   bool adds) {
  auto type = result.scalar_type();
  if (!at::hasMKL() || !only_blas() || !all_of_type(type, {one, other, bias.defined() ? bias : result})) return nullptr;
  if (type == at::kFloat) return batched<float>(result, bias, one, other, beta.to<float>(), alpha.to<float>(), adds);
  if (type == at::kDouble) {
    return batched<double>(result, bias, one, other, beta.to<double>(), alpha.to<double>(), adds);
  }
  return nullptr;
}

std::unique_ptr<Kernel> bmm(const KernelCall& call) {
  return batched_of(call.results[0], {}, tensor_at(call, 0), tensor_at(call, 1), 0, 1, false);
}

std::unique_ptr<Kernel> baddbmm(const KernelCall& call) {
  return batched_of(call.results[0], tensor_at(call, 0), tensor_at(call, 1), tensor_at(call, 2),
                    call.arguments[3].toScalar(), call.arguments[4].toScalar(), true);
}

std::unique_ptr<Kernel> baddbmm_in_place(const KernelCall& call) {
  return batched_of(call.results[0], {}, tensor_at(call, 1), tensor_at(call, 2), call.arguments[3].toScalar(),
                    call.arguments[4].toScalar(), true);
}

}  // namespace

void add_blas(Preparers& table) {
  table["aten::mm"] = mm;
  table["aten::addmm"] = addmm;
  table["aten::addmm_"] = addmm_in_place;
  table["aten::mv"] = mv;
  table["aten::addmv"] = addmv;
  table["aten::bmm"] = bmm;
  table["aten::baddbmm"] = baddbmm;
  table["aten::baddbmm_"] = baddbmm_in_place;
}

}  // namespace torchreel::graphs
