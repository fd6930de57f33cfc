#include "memory/tally.h"

#include <algorithm>

namespace torchreel {

Tally& Tally::get() {
  static Tally tally;  // trivially destroyed: tensors outlive everything
  return tally;
}

Tally::Stat Tally::read(Kind kind, Pool pool) const {
  int64_t current = now(kind, pool);
  Stat stat{current, std::max(peaks_[pool].of[kind].load(std::memory_order_relaxed), current)};
  for (auto part : {kSmall, kLarge}) {
    if (pool != part && pool != kAll) continue;
    stat.allocated += sums_[part].added[kind].load(std::memory_order_relaxed);
    stat.freed += sums_[part].removed[kind].load(std::memory_order_relaxed);
  }
  if (pool != kSmall) {
    stat.allocated += private_added_.of(kind);
    stat.freed += private_removed_.of(kind);
  }
  return stat;
}

void Tally::reset_peaks() {
  for (int kind = 0; kind < kKinds; kind++) {
    for (auto pool : {kSmall, kLarge, kAll}) peaks_[pool].of[kind].store(now(static_cast<Kind>(kind), pool));
  }
}

}  // namespace torchreel
