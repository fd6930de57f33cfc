#include "decode/calls/call_rows.h"

#include <algorithm>

namespace torchreel {

Finished CallRows::finished(uint64_t before) const {
  Finished finished(rows_.size());
  for (size_t i = 0; i < rows_.size(); i++) finished[i] = rows_[i].ended && rows_[i].end < before;
  return finished;
}

// A call's time counts as child time of its parent, or of its grandparent once the parent has ended. An async range
// takes no time from its parent, but the calls within the range do.
void CallRows::charge_parents(const Finished& finished) {
  for (size_t i = rows_.size(); i-- > 0;) {
    const Call& call = rows_[i];
    if (!finished[i]) continue;
    int32_t outer = call.parent_row;
    if (call.async) {
      if (outer != kNoRow) rows_[outer].children += call.children;
      continue;
    }
    uint64_t from = call.begin;
    for (; outer != kNoRow && from < call.end; outer = rows_[outer].parent_row) {
      Call& parent = rows_[outer];
      uint64_t to = parent.ended ? std::min(call.end, parent.end) : call.end;
      if (to > from) {
        parent.children += to - from;
        from = to;
      }
    }
  }
}

std::vector<int32_t> CallRows::drop(const Finished& finished) {
  std::vector<int32_t> moved(rows_.size(), kNoRow);
  size_t kept = 0;
  for (size_t i = 0; i < rows_.size(); i++) {
    if (finished[i]) continue;
    moved[i] = static_cast<int32_t>(kept);
    Call& call = rows_[kept++] = rows_[i];
    if (call.parent_row != kNoRow) call.parent_row = moved[call.parent_row];
  }
  rows_.resize(kept, Call{});
  return moved;
}

}  // namespace torchreel
