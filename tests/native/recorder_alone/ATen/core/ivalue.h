// What native/record/ names of torch's values, for a program without torch: they are passed on, and never looked into.
#pragma once

#include <cstddef>

namespace c10 {

struct IValue {};

template <class T>
struct ArrayRef {
  const T* data = nullptr;
  size_t size = 0;
};

}  // namespace c10
