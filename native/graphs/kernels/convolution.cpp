// Convolution of one small image: torch unfolds it into columns and multiplies matrices. The columns stay from run to
// run, so that the padding is written once.
#include <ATen/Context.h>
#include <ATen/native/ConvUtils.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>

#include "graphs/kernels/blas.h"
#include "graphs/kernels/handwritten.h"

namespace torchreel::graphs {

namespace {

struct Window {
  int64_t kernel_height, kernel_width, stride_height, stride_width, pad_height, pad_width;

  bool is_point() const {
    return kernel_height == 1 && kernel_width == 1 && stride_height == 1 && stride_width == 1 && pad_height == 0 &&
           pad_width == 0;
  }
};

// A run of elements that is contiguous in a row of the image and in a row of the columns.
template <class T>
struct Piece {
  T* to;
  const T* from;
  int64_t count;
};

// Copies all runs, channel by channel; of the image every `step`th element.
template <class T>
std::vector<Piece<T>> pieces(const at::Tensor& columns, const at::Tensor& image, const at::Tensor& result,
                             const Window& window) {
  int64_t channels = image.size(1), height = image.size(2), width = image.size(3);
  int64_t out_height = result.size(2), out_width = result.size(3);
  T* to = columns.mutable_data_ptr<T>();
  std::vector<Piece<T>> all;
  for (int64_t channel = 0; channel < channels; channel++) {
    const T* plane = image.const_data_ptr<T>() + channel * height * width;
    for (int64_t ky = 0; ky < window.kernel_height; ky++) {
      for (int64_t kx = 0; kx < window.kernel_width; kx++) {
        int64_t shift = kx - window.pad_width;  // from the first window of a row
        int64_t first = shift >= 0 ? 0 : (-shift + window.stride_width - 1) / window.stride_width;
        int64_t end = width - shift <= 0 ? 0 : (width - shift - 1) / window.stride_width + 1;
        end = std::min(end, out_width);
        for (int64_t y = 0; y < out_height; y++, to += out_width) {
          int64_t row = y * window.stride_height - window.pad_height + ky;
          if (row < 0 || row >= height || first >= end) continue;
          all.push_back({to + first, plane + row * width + first * window.stride_width + shift, end - first});
        }
      }
    }
  }
  return all;
}

template <class T>
class Convolution {
 public:
  Convolution(const at::Tensor& result, const at::Tensor& image, const at::Tensor& bias, const Window& window)
      : bias_(bias.defined() ? bias.const_data_ptr<T>() : nullptr), step_(window.stride_width) {
    if (window.is_point()) {
      columns_ = image;
    } else {
      int64_t rows = image.size(1) * window.kernel_height * window.kernel_width;
      columns_ = at::zeros({rows, result.size(2) * result.size(3)}, image.options());
      pieces_ = pieces<T>(columns_, image, result, window);
    }
  }

  bool set(const at::Tensor& result, const at::Tensor& weight) {
    int64_t m = result.size(2) * result.size(3), n = result.size(1), k = weight.numel() / n;
    gemm_.beta = bias_ == nullptr ? 0 : 1;
    gemm_.a = columns_.const_data_ptr<T>();
    gemm_.b = weight.const_data_ptr<T>();
    gemm_.c = result.mutable_data_ptr<T>();
    return set_sizes(gemm_, m, n, k, m, k, m);
  }

  void run() const {
    unfold();
    if (bias_ != nullptr) {
      for (int64_t i = 0; i < gemm_.n; i++) std::fill_n(gemm_.c + i * gemm_.m, gemm_.m, bias_[i]);
    }
    gemm_.run();
  }

 private:
  void unfold() const {
    if (step_ == 1) {
      for (const auto& piece : pieces_) std::memcpy(piece.to, piece.from, piece.count * sizeof(T));
      return;
    }
    for (const auto& piece : pieces_) {
      for (int64_t i = 0; i < piece.count; i++) piece.to[i] = piece.from[i * step_];
    }
  }

  Gemm<T> gemm_;
  const T* bias_;
  int64_t step_;
  at::Tensor columns_;
  std::vector<Piece<T>> pieces_;
};

bool is_plain(const at::Tensor& tensor) {
  return is_contiguous(tensor) && tensor.suggest_memory_format() == at::MemoryFormat::Contiguous;
}

// Whether torch would unfold the image.
bool unfolds(const KernelCall& call) {
  auto stride = call.arguments[3].toSymIntVector(), padding = call.arguments[4].toSymIntVector();
  auto dilation = call.arguments[5].toSymIntVector(), output_padding = call.arguments[7].toSymIntVector();
  auto bias = tensor_at(call, 2);
  auto backend = at::native::select_conv_backend(
      tensor_at(call, 0), tensor_at(call, 1), bias.defined() ? std::optional(bias) : std::nullopt, stride, padding,
      dilation, call.arguments[6].toBool(), output_padding, call.arguments[8].toInt(), std::nullopt);
  return backend == at::native::ConvBackend::Slow2d;
}

size_t columns_bytes(const at::Tensor& result, const at::Tensor& weight) {
  int64_t rows = weight.numel() / weight.size(0), positions = result.size(2) * result.size(3);
  return static_cast<size_t>(rows * positions) * result.element_size();
}

template <class T>
std::unique_ptr<Kernel> convolution(const KernelCall& call, const Window& window) {
  Convolution<T> made(call.results[0], tensor_at(call, 0), tensor_at(call, 2), window);
  if (!made.set(call.results[0], tensor_at(call, 1))) return nullptr;
  return kernel_of("blas", [made = std::move(made)] { made.run(); });
}

std::unique_ptr<Kernel> convolution(const KernelCall& call) {
  auto image = tensor_at(call, 0), weight = tensor_at(call, 1), bias = tensor_at(call, 2);
  const auto& result = call.results[0];
  auto type = result.scalar_type();
  if (image.dim() != 4 || image.size(0) != 1 || call.arguments[6].toBool() || call.arguments[8].toInt() != 1) {
    return nullptr;
  }
  if (at::globalContext().float32MatmulPrecision() != at::Float32MatmulPrecision::HIGHEST) return nullptr;
  for (const auto& tensor : {image, weight, result}) {
    if (!is_plain(tensor) || tensor.scalar_type() != type || tensor.numel() == 0) return nullptr;
  }
  if (bias.defined() && (!is_contiguous(bias) || bias.scalar_type() != type)) return nullptr;
  if (!unfolds(call)) return nullptr;
  auto stride = call.arguments[3].toIntVector(), padding = call.arguments[4].toIntVector();
  if (stride.empty() || padding.empty()) return nullptr;
  Window window{weight.size(2), weight.size(3), stride[0], stride.back(), padding[0], padding.back()};
  if (!window.is_point() && columns_bytes(result, weight) > kMostKept) return nullptr;
  if (type == at::kFloat) return convolution<float>(call, window);
  if (type == at::kDouble) return convolution<double>(call, window);
  return nullptr;
}

}  // namespace

void add_convolution(Preparers& table) { table["aten::convolution"] = convolution; }

}  // namespace torchreel::graphs
