// Encoded arguments (base/spool_format.h, Argument) -> the JSON texts of the table `inputs`. No torch, no Python.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace torchreel {

struct InputsText {
  std::string dims;
  std::string strides;
  std::string dtypes;
  std::string scalars;
  std::string keywords;  // an object; empty if there are none
};

// Words that make no sense end the list.
InputsText inputs_text(const std::vector<uint64_t>& words);

}  // namespace torchreel
