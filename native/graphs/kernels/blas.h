// Products of matrices and of a matrix and a vector, as BLAS takes them.
#pragma once

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>

#include <climits>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

extern "C" {
void sgemm_(const char*, const char*, const int*, const int*, const int*, const float*, const float*, const int*,
            const float*, const int*, const float*, float*, const int*);
void dgemm_(const char*, const char*, const int*, const int*, const int*, const double*, const double*, const int*,
            const double*, const int*, const double*, double*, const int*);
void sgemv_(const char*, const int*, const int*, const float*, const float*, const int*, const float*, const int*,
            const float*, float*, const int*);
void dgemv_(const char*, const int*, const int*, const double*, const double*, const int*, const double*, const int*,
            const double*, double*, const int*);
}

namespace torchreel::graphs {

// BLAS speaks of matrices by columns: C[m, n] = alpha * op(A)[m, k] * op(B)[k, n] + beta * C.
template <class T>
struct Gemm {
  char transa = 'n', transb = 'n';
  int m = 0, n = 0, k = 0, lda = 0, ldb = 0, ldc = 0;
  T alpha = 1, beta = 0;
  const T *a = nullptr, *b = nullptr;
  T* c = nullptr;

  void run() const {
    if constexpr (std::is_same_v<T, float>) {
      sgemm_(&transa, &transb, &m, &n, &k, &alpha, a, &lda, b, &ldb, &beta, c, &ldc);
    } else {
      dgemm_(&transa, &transb, &m, &n, &k, &alpha, a, &lda, b, &ldb, &beta, c, &ldc);
    }
  }
};

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

inline bool fits(int64_t value) { return value <= INT_MAX; }

// Leading dimensions of what is a single column do not matter, but BLAS checks them.
template <class T>
bool set_sizes(Gemm<T>& gemm, int64_t m, int64_t n, int64_t k, int64_t lda, int64_t ldb, int64_t ldc) {
  if (n == 1) ldc = m;
  if (gemm.transa == 'n' ? k == 1 : m == 1) lda = gemm.transa == 'n' ? m : k;
  if (gemm.transb == 'n' ? n == 1 : k == 1) ldb = gemm.transb == 'n' ? k : n;
  if (!fits(m) || !fits(n) || !fits(k) || !fits(lda) || !fits(ldb) || !fits(ldc)) return false;
  if (lda < (gemm.transa == 'n' ? m : k) || ldb < (gemm.transb == 'n' ? k : n) || ldc < m) return false;
  gemm.m = static_cast<int>(m);
  gemm.n = static_cast<int>(n);
  gemm.k = static_cast<int>(k);
  gemm.lda = static_cast<int>(lda);
  gemm.ldb = static_cast<int>(ldb);
  gemm.ldc = static_cast<int>(ldc);
  return true;
}

// Whether products of floats are computed by BLAS: a user may allow other libraries and less precision.
inline bool only_blas() { return at::globalContext().float32MatmulPrecision() == at::Float32MatmulPrecision::HIGHEST; }

// Whether all have this dtype, and none is lazily conjugated or negated.
inline bool all_of_type(at::ScalarType type, std::initializer_list<at::Tensor> tensors) {
  for (const auto& tensor : tensors) {
    if (tensor.scalar_type() != type || tensor.is_conj() || tensor.is_neg()) return false;
  }
  return true;
}

}  // namespace torchreel::graphs
