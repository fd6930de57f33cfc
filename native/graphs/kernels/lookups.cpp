// Rows that indices choose. Each run checks the indices, and raises torch's error for one that is out of range.
#include <c10/util/Exception.h>

#include <cstring>

#include "graphs/kernels/handwritten.h"

namespace torchreel::graphs {

namespace {

// For each of `outer` parts of the source, copies the rows that the indices name to the result.
struct Rows {
  char* result;
  const char* source;
  int64_t outer, rows, count;
  size_t bytes;

  template <class Index>
  void run(const Index* indices) const {
    char* to = result;
    for (int64_t part = 0; part < outer; part++) {
      const char* from = source + part * rows * static_cast<int64_t>(bytes);
      for (int64_t i = 0; i < count; i++, to += bytes) {
        int64_t row = indices[i];
        TORCH_CHECK_INDEX(row >= 0 && row < rows, "index out of range in self");
        std::memcpy(to, from + row * static_cast<int64_t>(bytes), bytes);
      }
    }
  }
};

std::unique_ptr<Kernel> rows_of(const at::Tensor& result, const at::Tensor& source, int64_t dimension,
                                const at::Tensor& indices) {
  if (!is_contiguous(result) || !is_contiguous(source) || !indices.is_contiguous()) return nullptr;
  if (source.scalar_type() != result.scalar_type() || source.is_quantized() || result.numel() == 0) return nullptr;
  if (dimension < 0 || dimension >= source.dim()) return nullptr;
  int64_t outer = 1, inner = 1;
  for (int64_t i = 0; i < dimension; i++) outer *= source.size(i);
  for (int64_t i = dimension + 1; i < source.dim(); i++) inner *= source.size(i);
  Rows rows{static_cast<char*>(result.mutable_data_ptr()),
            static_cast<const char*>(source.const_data_ptr()),
            outer,
            source.size(dimension),
            indices.numel(),
            static_cast<size_t>(inner) * source.element_size()};
  if (rows.outer * rows.count * inner != result.numel()) return nullptr;
  if (indices.scalar_type() == at::kLong) {
    return kernel_of("copy", [rows, chosen = indices.const_data_ptr<int64_t>()] { rows.run(chosen); });
  }
  if (indices.scalar_type() == at::kInt) {
    return kernel_of("copy", [rows, chosen = indices.const_data_ptr<int32_t>()] { rows.run(chosen); });
  }
  return nullptr;
}

std::unique_ptr<Kernel> embedding(const KernelCall& call) {
  auto weight = tensor_at(call, 0);
  if (weight.dim() != 2) return nullptr;
  return rows_of(call.results[0], weight, 0, tensor_at(call, 1));
}

std::unique_ptr<Kernel> index_select(const KernelCall& call) {
  auto source = tensor_at(call, 0), indices = tensor_at(call, 2);
  int64_t dimension = call.arguments[1].toInt();
  if (indices.dim() > 1) return nullptr;
  return rows_of(call.results[0], source, dimension < 0 ? dimension + source.dim() : dimension, indices);
}

template <class T>
std::unique_ptr<Kernel> embedding_backward(const KernelCall& call) {
  auto gradient = tensor_at(call, 0), indices = tensor_at(call, 1);
  const auto& result = call.results[0];
  int64_t padding = call.arguments[3].toInt(), rows = result.size(0), columns = result.size(1);
  return kernel_of("loop", [=, to = result.mutable_data_ptr<T>(), from = gradient.const_data_ptr<T>(),
                            chosen = indices.const_data_ptr<int64_t>(), count = indices.numel()] {
    std::memset(to, 0, static_cast<size_t>(rows * columns) * sizeof(T));
    for (int64_t i = 0; i < count; i++) {
      int64_t row = chosen[i];
      if (row == padding || row < 0 || row >= rows) continue;
      T* sums = to + row * columns;
      const T* added = from + i * columns;
      for (int64_t j = 0; j < columns; j++) sums[j] += added[j];
    }
  });
}

std::unique_ptr<Kernel> embedding_backward(const KernelCall& call) {
  auto gradient = tensor_at(call, 0), indices = tensor_at(call, 1);
  const auto& result = call.results[0];
  if (call.arguments[4].toBool() || indices.scalar_type() != at::kLong || !indices.is_contiguous()) return nullptr;
  if (!is_contiguous(gradient) || !is_contiguous(result) || gradient.scalar_type() != result.scalar_type()) {
    return nullptr;
  }
  if (result.scalar_type() == at::kFloat) return embedding_backward<float>(call);
  if (result.scalar_type() == at::kDouble) return embedding_backward<double>(call);
  return nullptr;
}

}  // namespace

void add_lookups(Preparers& table) {
  table["aten::embedding"] = embedding;
  table["aten::index_select"] = index_select;
  table["aten::embedding_dense_backward"] = embedding_backward;
}

}  // namespace torchreel::graphs
