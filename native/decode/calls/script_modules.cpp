#include "decode/calls/script_modules.h"

namespace torchreel {

using namespace layout;

namespace {

constexpr int kDeepestList = 100;

// Steps to a function, or to another method of the same module.
bool is_same_module(std::string_view name) {
  return name == "SELF" || name == "UNKNOWN_INSTANCE" || name == "INSTANCE_NAME_UNKNOWN";
}

bool is_list(const std::string& type) { return type == "ModuleList" || type == "ModuleDict"; }

}  // namespace

uint32_t ScriptModules::find(Modules& modules, uint32_t caller, const std::string& hierarchy) {
  auto key = std::make_pair(caller, hierarchy);
  auto known = known_.find(key);
  if (known != known_.end()) return known->second;
  if (paths_.empty()) read_paths(modules);
  uint32_t found = walk(modules, caller, hierarchy);
  known_.emplace(std::move(key), found);
  return found;
}

void ScriptModules::read_paths(const Modules& modules) {
  for (uint32_t i = 0; i < modules.size(); i++) {
    if (modules[i].known) paths_.emplace(modules[i].path, i);
  }
}

// Each step is name(type)::function, and a point.
uint32_t ScriptModules::walk(Modules& modules, uint32_t caller, std::string_view hierarchy) {
  uint32_t module = caller;
  bool outermost = true;
  while (!hierarchy.empty()) {
    size_t open = hierarchy.find('(');
    size_t close = open == std::string_view::npos ? open : hierarchy.find(")::", open);
    if (close == std::string_view::npos) break;
    std::string name(hierarchy.substr(0, open));
    std::string type(hierarchy.substr(open + 1, close - open - 1));
    size_t end = hierarchy.find('.', close);
    hierarchy = end == std::string_view::npos ? std::string_view() : hierarchy.substr(end + 1);
    if (is_same_module(name)) continue;
    bool is_root = outermost && (name == "TOP" || name == "top");
    outermost = false;
    if (!is_root) {
      module = part(modules, module, name, type);
    } else if (module == kNone && !type.empty()) {  // a function has no type
      module = part(modules, kNone, type, type);    // no call of it was seen
    }
  }
  return module;
}

// The part of a module that has this name: its own, or that of a list which it holds. Lists are never called, so torch
// does not name them.
uint32_t ScriptModules::part(Modules& modules, uint32_t owner, const std::string& name, const std::string& type) {
  std::string own = owner < modules.size() ? modules[owner].path + "." + name : name;
  auto known = paths_.find(own);
  if (known != paths_.end() && modules[known->second].type == type) return known->second;
  std::vector<uint32_t> ways;
  for (uint32_t i = 0; owner < modules.size() && i < modules.size(); i++) {
    if (modules[i].type != type || !modules[i].path.ends_with("." + name)) continue;
    uint32_t holder = modules[i].parent;
    // Not without end: in a damaged file a list may hold itself.
    for (int up = 0; up < kDeepestList && holder < modules.size() && is_list(modules[holder].type); up++) {
      holder = modules[holder].parent;
    }
    if (holder == owner && holder != modules[i].parent) ways.push_back(i);
  }
  if (ways.size() == 1) return ways[0];
  return known != paths_.end() ? known->second : add(modules, owner, own, type);
}

uint32_t ScriptModules::add(Modules& modules, uint32_t owner, const std::string& path, const std::string& type) {
  auto id = static_cast<uint32_t>(modules.size());
  modules.push_back({path, type, owner, true});
  paths_.emplace(path, id);
  return id;
}

}  // namespace torchreel
