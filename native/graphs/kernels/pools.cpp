// The maximum over windows of an image, row by row: torch looks at one window after the other.
#include <ATen/Parallel.h>

#include <algorithm>
#include <limits>

#include "graphs/kernels/handwritten.h"

namespace torchreel::graphs {

namespace {

#if defined(__x86_64__)
#define TORCHREEL_WIDE __attribute__((target("avx2"), optimize("O3")))
#else
#define TORCHREEL_WIDE
#endif

// As torch compares: NaN is the greatest, and the last of several NaNs wins.
template <class T>
__attribute__((always_inline)) inline void take(T& best, int32_t& index, T value, int32_t where) {
  bool taken = (value > best) | (value != value);
  best = taken ? value : best;
  index = taken ? where : index;
}

template <class T, int64_t step>
TORCHREEL_WIDE void take_greater(T* best, int32_t* indices, const T* row, int32_t offset, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; i++) {
    take(best[i], indices[i], row[i * step], offset + static_cast<int32_t>(i * step));
  }
}

template <class T>
void take_greater(T* best, int32_t* indices, const T* row, int32_t offset, int64_t count, int64_t step) {
  if (step == 1) return take_greater<T, 1>(best, indices, row, offset, count);
  if (step == 2) return take_greater<T, 2>(best, indices, row, offset, count);
  for (int64_t i = 0; i < count; i++) {
    take_greater<T, 1>(best + i, indices + i, row + i * step, offset + static_cast<int32_t>(i * step), 1);
  }
}

// Windows of two by two, side by side, without padding: by far the most frequent ones.
template <class T>
TORCHREEL_WIDE void pairs(T* best, int64_t* indices, const T* image, int32_t offset, int32_t width, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; i++) {
    T value = image[2 * i];
    int32_t at = 0;
    take(value, at, image[2 * i + 1], 1);
    take(value, at, image[2 * i + width], width);
    take(value, at, image[2 * i + width + 1], width + 1);
    best[i] = value;
    indices[i] = offset + static_cast<int32_t>(2 * i) + at;
  }
}

// One element of the kernel in all windows of a row that have it within the image.
struct Sweep {
  int64_t to, from, count;  // offsets in a plane of the result and of the image
};

struct Geometry {
  int64_t kernel, stride, padding, dilation, size, out;

  // The windows in which this element of the kernel lies within the image.
  std::pair<int64_t, int64_t> windows(int64_t element) const {
    int64_t shift = element * dilation - padding;
    int64_t first = shift >= 0 ? 0 : (-shift + stride - 1) / stride;
    int64_t end = size - shift <= 0 ? 0 : (size - shift - 1) / stride + 1;
    return {first, std::min(end, out)};
  }

  // Where a window begins inside the image.
  int64_t begin(int64_t window) const {
    int64_t at = window * stride - padding;
    while (at < 0) at += dilation;
    return at;
  }
};

std::vector<Sweep> sweeps(const Geometry& rows, const Geometry& columns) {
  std::vector<Sweep> all;
  for (int64_t y = 0; y < rows.out; y++) {
    for (int64_t ky = 0; ky < rows.kernel; ky++) {
      int64_t row = y * rows.stride - rows.padding + ky * rows.dilation;
      if (row < 0 || row >= rows.size) continue;
      for (int64_t kx = 0; kx < columns.kernel; kx++) {
        auto [first, end] = columns.windows(kx);
        if (first >= end) continue;
        int64_t column = first * columns.stride - columns.padding + kx * columns.dilation;
        all.push_back({y * columns.out + first, row * columns.size + column, end - first});
      }
    }
  }
  return all;
}

template <class T>
class MaxPool {
 public:
  MaxPool(const KernelCall& call, const Geometry& rows, const Geometry& columns)
      : image_(tensor_at(call, 0).const_data_ptr<T>()),
        result_(call.results[0].mutable_data_ptr<T>()),
        indices_(call.results[1].mutable_data_ptr<int64_t>()),
        plane_(rows.size * columns.size),
        out_plane_(rows.out * columns.out),
        planes_(call.results[0].numel() / out_plane_),
        step_(columns.stride),
        sweeps_(sweeps(rows, columns)),
        best_indices_(out_plane_) {
    for (int64_t y = 0; y < rows.out; y++) {
      for (int64_t x = 0; x < columns.out; x++) {
        starts_.push_back(static_cast<int32_t>(rows.begin(y) * columns.size + columns.begin(x)));
      }
    }
  }

  void run() {
    for (int64_t plane = 0; plane < planes_; plane++) run_plane(plane);
  }

 private:
  void run_plane(int64_t plane) {
    T* best = result_ + plane * out_plane_;
    const T* image = image_ + plane * plane_;
    std::fill_n(best, out_plane_, -std::numeric_limits<T>::infinity());
    std::copy(starts_.begin(), starts_.end(), best_indices_.begin());
    for (const auto& sweep : sweeps_) {
      take_greater<T>(best + sweep.to, best_indices_.data() + sweep.to, image + sweep.from,
                      static_cast<int32_t>(sweep.from), sweep.count, step_);
    }
    std::copy(best_indices_.begin(), best_indices_.end(), indices_ + plane * out_plane_);
  }

  const T* image_;
  T* result_;
  int64_t* indices_;
  int64_t plane_, out_plane_, planes_, step_;
  std::vector<Sweep> sweeps_;
  std::vector<int32_t> starts_, best_indices_;
};

int64_t pick(const std::vector<int64_t>& values, size_t dimension) {
  return values.size() == 1 ? values[0] : values[dimension];
}

Geometry geometry(const KernelCall& call, size_t dimension) {
  auto kernel = call.arguments[1].toIntVector(), stride = call.arguments[2].toIntVector();
  auto padding = call.arguments[3].toIntVector(), dilation = call.arguments[4].toIntVector();
  auto image = tensor_at(call, 0);
  auto from_end = static_cast<int64_t>(dimension) - 2;
  return {pick(kernel, dimension),  pick(stride.empty() ? kernel : stride, dimension),
          pick(padding, dimension), pick(dilation, dimension),
          image.size(from_end),     call.results[0].size(from_end)};
}

bool is_pairs(const Geometry& geometry) {
  return geometry.kernel == 2 && geometry.stride == 2 && geometry.padding == 0 && geometry.dilation == 1 &&
         2 * geometry.out <= geometry.size;
}

template <class T>
std::unique_ptr<Kernel> max_pool(const KernelCall& call, const Geometry& rows, const Geometry& columns) {
  if (!is_pairs(rows) || !is_pairs(columns)) {
    return kernel_of("loop", [pool = MaxPool<T>(call, rows, columns)]() mutable { pool.run(); });
  }
  return kernel_of("loop",
                   [rows, columns, image = tensor_at(call, 0).const_data_ptr<T>(),
                    best = call.results[0].mutable_data_ptr<T>(), indices = call.results[1].mutable_data_ptr<int64_t>(),
                    planes = call.results[0].numel() / (rows.out * columns.out)] {
                     for (int64_t plane = 0; plane < planes; plane++) {
                       for (int64_t y = 0; y < rows.out; y++) {
                         int64_t to = (plane * rows.out + y) * columns.out, offset = 2 * y * columns.size;
                         pairs<T>(best + to, indices + to, image + plane * rows.size * columns.size + offset,
                                  static_cast<int32_t>(offset), static_cast<int32_t>(columns.size), columns.out);
                       }
                     }
                   });
}

constexpr int64_t kMostPixelsForOneThread = 1 << 17;

std::unique_ptr<Kernel> max_pool(const KernelCall& call) {
  auto image = tensor_at(call, 0);
  if (call.results.size() != 2 || image.dim() < 3 || image.dim() > 4 || image.numel() == 0) return nullptr;
  const auto &result = call.results[0], &indices = call.results[1];
  if (image.suggest_memory_format() != at::MemoryFormat::Contiguous ||
      image.numel() > std::numeric_limits<int>::max() || result.numel() == 0) {
    return nullptr;
  }
  if (!is_contiguous(image) || !is_contiguous(result) || !is_contiguous(indices)) return nullptr;
  if (at::get_num_threads() > 1 && image.numel() > kMostPixelsForOneThread) return nullptr;
  auto rows = geometry(call, 0), columns = geometry(call, 1);
  if (image.scalar_type() == at::kFloat) return max_pool<float>(call, rows, columns);
  if (image.scalar_type() == at::kDouble) return max_pool<double>(call, rows, columns);
  return nullptr;
}

}  // namespace

void add_pools(Preparers& table) { table["aten::max_pool2d_with_indices"] = max_pool; }

}  // namespace torchreel::graphs
