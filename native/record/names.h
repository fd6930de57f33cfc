// Names of calls -> small ids, defined in the spool at first sight. Does not require the GIL.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/spool_format.h"

namespace torchreel {

class Spool;

class NameTable {
 public:
  explicit NameTable(Spool& spool) : spool_(spool) {}

  // kInlineName when there are so many names that further ones must stand in the stream.
  uint32_t id(std::string_view name, std::string_view overload, layout::Kind kind, uint32_t module = layout::kNone);
  void clear();

 private:
  // A program that names each step anew must not fill memory with names.
  static constexpr size_t kMost = 1 << 16;

  Spool& spool_;
  std::mutex mutex_;
  std::unordered_map<std::string, uint32_t> ids_;
};

inline uint64_t hash_words(const uint64_t* words, size_t count) {
  uint64_t hash = 0x9e3779b97f4a7c15 ^ count;
  for (size_t i = 0; i < count; i++) {
    hash = (hash ^ words[i]) * 0xff51afd7ed558ccd;
    hash ^= hash >> 32;
  }
  return hash;
}

uint64_t hash_text(const char* text, size_t bytes);

}  // namespace torchreel
