// What a program refers to and a file cannot hold: generators, and values that are neither tensors nor plain.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/ivalue.h>

#include <vector>

namespace torchreel::tape {

struct Kept {
  std::vector<at::Generator> generators;
  std::vector<c10::IValue> objects;
};

}  // namespace torchreel::tape
