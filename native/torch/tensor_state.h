// What Python can ask a tensor without an op: its geometry, and what autograd has noted of it.
#pragma once

#include <ATen/core/Tensor.h>
#include <Python.h>

#include <cstdint>

namespace torchreel::graphs {

struct TensorState {
  // Bits of `autograd`, and of a mask that says which questions count.
  enum Bit : uint32_t {
    kRequiresGrad = 1,
    kGradFn = 2,
    kGrad = 4,              // .grad is not None
    kHooks = 8,             // hooks of the tensor, called in a backward
    kAccumulateHooks = 16,  // called before or after a gradient is accumulated
    kRetainsGrad = 32,
    kForwardGrad = 64,     // a tangent of forward-mode AD
    kOwnAttributes = 128,  // somebody has set an attribute on the Python object
    kGeometry = 256,       // in masks only: keys, dtype, sizes, strides and offset
  };

  uint32_t autograd = 0;
  c10::DispatchKeySet keys;
  caffe2::TypeMeta type;
  c10::DimVector sizes, strides;
  int64_t offset = 0;

  // `object` is the Python object of the tensor, or null.
  static TensorState of(const c10::TensorImpl& tensor, PyObject* object);
  static uint32_t autograd_of(const c10::TensorImpl& tensor);
  static bool has_own_attributes(PyObject* object);
  bool is(const c10::TensorImpl& tensor, PyObject* object, uint32_t mask) const;
};

}  // namespace torchreel::graphs
