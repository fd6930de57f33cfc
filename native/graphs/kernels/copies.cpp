// Copies: into other memory, into another layout, into another type.
#include "graphs/kernels/copies.h"

#include <ATen/ExpandUtils.h>
#include <ATen/Parallel.h>
#include <ATen/native/Copy.h>

#include <algorithm>

#include "graphs/kernels/handwritten.h"

namespace torchreel::graphs {

namespace {

constexpr int64_t kManyElements = at::internal::GRAIN_SIZE;  // from here on torch uses its threads

struct Dimension {
  int64_t size, target_stride, source_stride;
};

// The dimensions of both tensors, outermost first, adjacent ones collapsed.
std::vector<Dimension> dimensions_of(const at::Tensor& target, const at::Tensor& source) {
  std::vector<Dimension> all, merged;
  for (int64_t i = 0; i < target.dim(); i++) {
    if (target.size(i) != 1) all.push_back({target.size(i), target.stride(i), source.stride(i)});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& one, const auto& other) { return one.target_stride > other.target_stride; });
  for (const auto& inner : all) {
    if (!merged.empty() && merged.back().target_stride == inner.size * inner.target_stride &&
        merged.back().source_stride == inner.size * inner.source_stride) {
      merged.back() = {merged.back().size * inner.size, inner.target_stride, inner.source_stride};
    } else {
      merged.push_back(inner);
    }
  }
  return merged;
}

bool is_row(const Dimension& dimension) { return dimension.target_stride == 1 && dimension.source_stride == 1; }

}  // namespace

Copy::Copy(const at::Tensor& target, const at::Tensor& source) : kept_target_(target), kept_source_(source) {
  if (target.numel() == 0) return;
  auto wide = source.sizes() == target.sizes() ? source : source.expand(target.sizes());
  bool bits = wide.scalar_type() == target.scalar_type() && wide.is_conj() == target.is_conj() &&
              wide.is_neg() == target.is_neg();
  if (bits && target.numel() < kManyElements) {
    target_ = static_cast<char*>(target.mutable_data_ptr());
    source_ = static_cast<const char*>(wide.const_data_ptr());
    auto size = static_cast<int64_t>(target.element_size());
    auto dimensions = dimensions_of(target, wide);
    if (dimensions.empty()) {
      rows_ = 1;
      bytes_ = size;
    } else if (dimensions.size() == 1 && is_row(dimensions[0])) {
      rows_ = 1;
      bytes_ = size * dimensions[0].size;
    } else if (dimensions.size() == 2 && is_row(dimensions[1])) {
      rows_ = dimensions[0].size;
      bytes_ = size * dimensions[1].size;
      target_step_ = size * dimensions[0].target_stride;
      source_step_ = size * dimensions[0].source_stride;
    }
    if (rows_ > 0) return;
  }
  large_ = target.numel() >= kManyElements;
  kept_source_ = wide;
  iterator_.emplace(at::TensorIteratorConfig()
                        .add_owned_output(target)
                        .add_owned_const_input(wide)
                        .resize_outputs(false)
                        .check_all_same_dtype(false)
                        .check_all_same_device(false)
                        .build());
}

void Copy::run_rows() {
  char* to = target_;
  const char* from = source_;
  for (int64_t i = 0; i < rows_; i++, to += target_step_, from += source_step_) std::memcpy(to, from, bytes_);
}

void Copy::run_iterator() {
  if (large_) {
    kept_target_.copy_(kept_source_);  // faster for large tensors, whose preparation costs little in comparison
  } else {
    at::native::copy_stub(at::kCPU, *iterator_, false);
  }
}

bool apart(const at::Tensor& one, const at::Tensor& other) {
  auto range = [](const at::Tensor& tensor) {
    int64_t last = 0;
    for (int64_t i = 0; i < tensor.dim(); i++) last += (tensor.size(i) - 1) * tensor.stride(i);
    auto begin = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
    return std::pair(begin, begin + static_cast<size_t>(last + 1) * tensor.element_size());
  };
  if (one.numel() == 0 || other.numel() == 0) return true;
  auto [one_begin, one_end] = range(one);
  auto [other_begin, other_end] = range(other);
  return one_end <= other_begin || other_end <= one_begin;
}

namespace {

std::unique_ptr<Kernel> copy_into(const at::Tensor& target, const at::Tensor& source) {
  if (!source.defined() || source.is_quantized() || target.is_quantized()) return nullptr;
  if (source.is_complex() != target.is_complex()) return nullptr;  // torch warns
  if (!at::is_expandable_to(source.sizes(), target.sizes()) || !apart(target, source)) return nullptr;
  return kernel_of("copy", [copy = Copy(target, source)]() mutable { copy.run(); });
}

std::unique_ptr<Kernel> copy_in_place(const KernelCall& call) { return copy_into(call.results[0], tensor_at(call, 1)); }

std::unique_ptr<Kernel> copy_of_first(const KernelCall& call) {
  auto source = tensor_at(call, 0);
  if (!source.defined() || source.sizes() != call.results[0].sizes()) return nullptr;
  return copy_into(call.results[0], source);
}

}  // namespace

void add_copies(Preparers& table) {
  table["aten::copy_"] = copy_in_place;
  table["aten::clone"] = copy_of_first;
  table["aten::_to_copy"] = copy_of_first;
  table["aten::alias_copy"] = copy_of_first;
  table["aten::detach_copy"] = copy_of_first;
}

}  // namespace torchreel::graphs
