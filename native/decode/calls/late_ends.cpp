#include "decode/calls/late_ends.h"

#include <algorithm>

namespace torchreel {

void LateEnds::settle(uint64_t before) {
  if (ends_.empty()) return;
  auto open = calls_.by_key();
  std::stable_sort(ends_.begin(), ends_.end(), [](auto& a, auto& b) { return a.tick < b.tick; });
  std::vector<LateEnd> waiting;
  for (const LateEnd& late : ends_) {
    if (late.tick >= before) {
      waiting.push_back(late);
      continue;
    }
    auto [first, last] = open.equal_range(late.key);
    auto best = last;
    for (auto candidate = first; candidate != last; ++candidate) {
      const Call& call = rows_[candidate->second];
      if (call.ended || call.begin > late.tick) continue;
      if (best == last || call.begin < rows_[best->second].begin) best = candidate;
    }
    if (best != last) calls_.end_elsewhere(best->second, late.thread, late.tick);
  }
  ends_.swap(waiting);
}

}  // namespace torchreel
