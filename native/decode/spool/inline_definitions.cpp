#include "decode/spool/inline_definitions.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace torchreel {

using namespace layout;

uint32_t InlineDefinitions::name(const std::string& name, uint32_t kind) {
  kind = std::min<uint32_t>(kind, kOther);
  auto [known, added] = names_.emplace(name + '\0' + std::to_string(kind), definitions_.names.size());
  if (added) definitions_.names.push_back({valid_text(name), "", kind, kNone});
  return known->second;
}

uint32_t InlineDefinitions::inputs(std::vector<uint64_t> words) {
  std::string key(reinterpret_cast<const char*>(words.data()), words.size() * 8);
  auto [known, added] = inputs_.emplace(std::move(key), definitions_.inputs.size());
  if (added) definitions_.inputs.push_back(std::move(words));
  return known->second;
}

}  // namespace torchreel
