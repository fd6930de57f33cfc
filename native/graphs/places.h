// Where tensors of a function's own lie, and with which sizes; and whether they still do: asked before each replay.
//
// For most tensors that is written down as words: where eight bytes are, and what they were. A hundred parameters are
// then one pass over an array.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace torchreel::graphs {

class Places {
 public:
  // One with strides. Somebody else keeps it and its storage alive.
  void add(const at::Tensor& tensor);
  bool same() const;

 private:
  struct Word {
    const uint64_t* at;
    uint64_t was;
  };
  // One whose sizes torch keeps elsewhere.
  struct Other {
    c10::TensorImpl* tensor;
    c10::DimVector sizes, strides;
    int64_t offset;
    const void* data;
    c10::ScalarType dtype;
  };
  void add(const void* at);

  std::vector<Word> words_;
  std::vector<Other> others_;
};

}  // namespace torchreel::graphs
