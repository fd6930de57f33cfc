// What a decoder hands out: batches of rows, each with the name of its table. No torch, no Python.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/spool_format.h"
#include "decode/tables/arrow.h"

namespace torchreel {

using Batches = std::vector<std::pair<std::string, std::unique_ptr<Batch>>>;

// Texts that many rows share, each once.
class Texts {
 public:
  int32_t id(const std::string& text) {
    auto [known, added] = ids_.emplace(text, texts_.size());
    if (added) texts_.push_back(text);
    return static_cast<int32_t>(known->second);
  }
  std::vector<std::string> take() { return std::move(texts_); }

 private:
  std::unordered_map<std::string, size_t> ids_;
  std::vector<std::string> texts_;
};

inline int64_t or_none(uint32_t id) { return id == layout::kNone ? -1 : static_cast<int64_t>(id); }

}  // namespace torchreel
