// Products of many matrices (bmm, baddbmm): by loops if they are small, else by BLAS in one call.
#include <array>
#include <vector>

#include "graphs/kernels/blas.h"
#include "graphs/kernels/copies.h"
#include "graphs/kernels/handwritten.h"

extern "C" {
void sgemm_batch_(const char*, const char*, const int*, const int*, const int*, const float*, const float* const*,
                  const int*, const float* const*, const int*, const float*, float* const*, const int*, const int*,
                  const int*);
void dgemm_batch_(const char*, const char*, const int*, const int*, const int*, const double*, const double* const*,
                  const int*, const double* const*, const int*, const double*, double* const*, const int*, const int*,
                  const int*);
}

namespace torchreel::graphs {

namespace {

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

void add_batched_products(Preparers& table) {
  table["aten::bmm"] = bmm;
  table["aten::baddbmm"] = baddbmm;
  table["aten::baddbmm_"] = baddbmm_in_place;
}

}  // namespace torchreel::graphs
