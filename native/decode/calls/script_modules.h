// The modules within TorchScript, among those that the recording knows. No torch, no Python.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "decode/spool/definitions.h"

namespace torchreel {

class ScriptModules {
 public:
  using Modules = std::vector<Definitions::Module>;

  // The module that an op stands in which `caller` (kNone: no module) runs in TorchScript, by what torch says:
  // TOP(Net)::forward.fc(Linear)::forward. One that is not known yet is added.
  uint32_t find(Modules& modules, uint32_t caller, const std::string& hierarchy);

 private:
  uint32_t walk(Modules& modules, uint32_t caller, std::string_view hierarchy);
  uint32_t part(Modules& modules, uint32_t owner, const std::string& name, const std::string& type);
  void read_paths(const Modules& modules);
  uint32_t add(Modules& modules, uint32_t owner, const std::string& path, const std::string& type);

  std::map<std::pair<uint32_t, std::string>, uint32_t> known_;
  std::map<std::string, uint32_t> paths_;
};

}  // namespace torchreel
