// A digest of a tensor's values: a hash of all bits, and samples by which the distance of another can be judged.
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

// Of sizes, dtype and elements in the order of indices, whatever the strides. None for a tensor without strides or
// without memory, or not on the CPU. Calls ops of torch for tensors with gaps: no tape may record this thread.
std::optional<Digest> digest_of(const at::Tensor& tensor);

}  // namespace torchreel::tape
