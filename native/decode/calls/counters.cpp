#include "decode/calls/counters.h"

#include <utility>

namespace torchreel {

using namespace layout;

void CallCounters::begin(Call& call, Readings& readings) {
  if (readings.empty()) return;
  call.counters = static_cast<uint32_t>(at_begin_.size());
  at_begin_.push_back(std::move(readings));
  readings.clear();
}

void CallCounters::end(const Call& call, const Readings& readings) {
  if (call.counters == kNone || call.hidden) return;
  const Readings& before = at_begin_[call.counters];
  for (uint32_t i = 0; i < before.size() && i < readings.size(); i++) {
    differences_.push_back({call.id, i, static_cast<int64_t>(readings[i] - before[i])});
  }
}

void CallCounters::keep_only(CallRows& rows) {
  std::vector<Readings> kept;
  for (Call& call : rows) {
    if (call.counters == kNone) continue;
    kept.push_back(std::move(at_begin_[call.counters]));
    call.counters = static_cast<uint32_t>(kept.size() - 1);
  }
  at_begin_.swap(kept);
}

}  // namespace torchreel
