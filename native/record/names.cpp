#include "record/names.h"

#include <cstring>

#include "record/spool.h"

namespace torchreel {

uint64_t hash_text(const char* text, size_t bytes) {
  uint64_t hash = 0xc2b2ae3d27d4eb4f ^ bytes;
  while (bytes >= 8) {
    uint64_t word;
    memcpy(&word, text, 8);
    hash = (hash ^ word) * 0xff51afd7ed558ccd;
    hash ^= hash >> 32;
    text += 8;
    bytes -= 8;
  }
  uint64_t rest = 0;
  memcpy(&rest, text, bytes);
  hash = (hash ^ rest) * 0xff51afd7ed558ccd;
  return hash ^ (hash >> 32);
}

uint32_t NameTable::id(std::string_view name, std::string_view overload, layout::Kind kind, uint32_t module) {
  std::string key;
  key.reserve(name.size() + overload.size() + 10);
  key.append(name).push_back('\0');
  key.append(overload).push_back('\0');
  key.append(reinterpret_cast<const char*>(&module), 4).push_back(static_cast<char>(kind));
  std::lock_guard lock(mutex_);
  auto known = ids_.find(key);
  if (known != ids_.end()) return known->second;
  if (ids_.size() >= kMost) return layout::kInlineName;
  uint32_t id = static_cast<uint32_t>(ids_.size());
  ids_.emplace(std::move(key), id);
  spool_.define(layout::kNameDef, Payload().u32(id).u32(kind).u32(module).text(name).text(overload));
  return id;
}

void NameTable::clear() {
  std::lock_guard lock(mutex_);
  ids_.clear();
}

}  // namespace torchreel
