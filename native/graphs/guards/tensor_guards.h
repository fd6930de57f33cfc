// Guards on tensors of a function's own: where they lie, and with which sizes. Asked before each replay.
//
// For most tensors that is written down as words, and what they were: a hundred parameters are then one pass over an
// array, without a branch.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace torchreel::graphs {

class TensorGuards {
 public:
  // One with strides. Somebody else keeps it and its storage alive.
  void add(const at::Tensor& tensor);
  bool hold() const;

 private:
  // What every tensor has; a scalar has a first size as well, which is not used.
  struct Common {
    const uint64_t* storage;
    const uint64_t* data;
    const uint64_t* sizes;
    uint64_t was_storage, was_data, dim, size, stride, offset, type;
  };
  // Of a size or a stride after the first.
  struct Word {
    const uint64_t* at;
    uint64_t was;
  };
  // One whose sizes torch keeps elsewhere.
  struct Other {
    c10::TensorImpl* tensor;
    const c10::StorageImpl* storage;
    c10::DimVector sizes, strides;
    int64_t offset;
    const void* data;
    c10::ScalarType dtype;
  };

  std::vector<Common> common_;
  std::vector<Word> words_;
  std::vector<Other> others_;
};

}  // namespace torchreel::graphs
