// The value that a function returns, taken apart once and built again at each replay.
//
// A cache entry owns one. of() is called when the entry is made, build() after each run that returns more than one
// tensor alone. Both need the GIL.
#pragma once

#include <pybind11/pybind11.h>

#include <vector>

namespace torchreel::graphs {

// A tree of Python's own containers, with a leaf for each tensor.
struct Result {
  enum Kind { kTensor, kTuple, kList, kDict, kConstant };
  Kind kind = kConstant;
  size_t index = 0;        // of a tensor: among the outputs
  pybind11::object value;  // a constant; the keys of a dict as a tuple
  std::vector<Result> parts;

  // `leaf` is the class of what stands for a tensor. Throws where there is a class that only Python can build.
  static Result of(const pybind11::handle& shape, const pybind11::handle& leaf);
  pybind11::object build(const std::vector<pybind11::object>& tensors) const;
};

}  // namespace torchreel::graphs
