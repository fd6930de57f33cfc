// What is kept of a tensor's values: a hash of all bits, and some values to tell how far another is.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace torchreel::tape {

struct Digest {
  uint64_t hash;
  double norm;
  std::vector<double> samples;
};

uint64_t hash_bytes(const void* bytes, size_t count, uint64_t seed);

// Of sizes, dtype and elements in the order of indices, whatever the strides. None for a layout without strides, or a
// tensor without memory or not on the CPU. Calls ops of torch for tensors with gaps: nothing may be recording this
// thread.
std::optional<Digest> digest_of(const at::Tensor& tensor);

}  // namespace torchreel::tape
