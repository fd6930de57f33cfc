// Names and inputs that stand among the events, because there were too many to define each. No torch, no Python.
//
// The EventReader meets them, and gets an id for each, as the definitions of the spool have one. Equal ones share it.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "decode/spool/definitions.h"

namespace torchreel {

class InlineDefinitions {
 public:
  // Adds to these, which must outlive it.
  explicit InlineDefinitions(Definitions& definitions) : definitions_(definitions) {}

  uint32_t name(const std::string& name, uint32_t kind);
  uint32_t inputs(std::vector<uint64_t> words);
  // Whether it gave an id, which a later record of the definitions may have, too.
  bool any() const { return !names_.empty() || !inputs_.empty(); }

 private:
  Definitions& definitions_;
  std::unordered_map<std::string, uint32_t> names_;
  std::unordered_map<std::string, uint32_t> inputs_;
};

}  // namespace torchreel
