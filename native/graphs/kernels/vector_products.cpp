// Products of a matrix and a vector (mv, addmv).
#include "graphs/kernels/blas.h"
#include "graphs/kernels/copies.h"
#include "graphs/kernels/handwritten.h"

namespace torchreel::graphs {

namespace {

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

}  // namespace

void add_vector_products(Preparers& table) {
  table["aten::mv"] = mv;
  table["aten::addmv"] = addmv;
}

}  // namespace torchreel::graphs
