// The encoding of values while a tape is recorded: words of 64 bits, with the tag in the lowest byte.
#pragma once

#include <cstdint>

namespace torchreel::tape {

enum Tag : uint64_t {
  kNothing,  // None, or an undefined tensor
  kTensor,   // slot << 8
  kStorage,  // slot << 8
  kFalse,
  kTrue,
  kInt,            // and a word
  kDouble,         // and a word
  kComplexNumber,  // and two words
  kText,           // bytes << 8, and its words
  kDeviceName,     // index + 1 << 16 | type << 8
  kList,           // elements << 8, and these
  kGenerator,      // index << 8
  kObject,         // index << 8
};

}  // namespace torchreel::tape
