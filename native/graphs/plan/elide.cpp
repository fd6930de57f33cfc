#include "graphs/plan/elide.h"

#include <algorithm>
#include <string_view>

#include "graphs/plan/pool.h"
#include "tape/capture/slots.h"

namespace torchreel::graphs {

using tape::Gave;
using tape::Given;
using tape::kNone;
using tape::PlanSlot;
using tape::Step;

namespace {

// Inputs of `cat` that lie in its output keep the whole output alive: a large one for few steps only.
constexpr size_t kSmallBytes = 1 << 18;
constexpr int64_t kSoon = 16;

size_t bytes_of(const PlanSlot& slot) {
  size_t bytes = c10::elementSize(slot.dtype);
  for (int64_t size : slot.sizes) bytes *= static_cast<size_t>(size);
  return bytes;
}

size_t begin_of(const PlanSlot& slot) { return static_cast<size_t>(slot.offset) * c10::elementSize(slot.dtype); }

bool is_contiguous(const PlanSlot& slot) {
  int64_t stride = 1;
  for (size_t i = slot.sizes.size(); i-- > 0;) {
    if (slot.sizes[i] != 1 && slot.strides[i] != stride) return false;
    stride *= slot.sizes[i];
  }
  return stride > 0;
}

bool is_dense(const PlanSlot& slot) { return slot.extent == begin_of(slot) + bytes_of(slot); }

bool same_layout(const PlanSlot& one, const PlanSlot& other) {
  return one.dtype == other.dtype && one.sizes == other.sizes && one.strides == other.strides && bytes_of(one) > 0;
}

// The argument that an op copies without a change, or -1.
int copied_argument(std::string_view name) {
  for (std::string_view copy : {"aten::clone", "aten::_to_copy", "aten::alias_copy", "aten::detach_copy"}) {
    if (name == copy) return 0;
  }
  return name == "aten::copy" ? 1 : -1;
}

class Elision {
 public:
  Elision(Recorded& all, std::vector<StorageInfo>& storages, int64_t boundary)
      : all_(all), storages_(storages), boundary_(boundary), uses_(storages.size()) {
    for (uint32_t slot = 0; slot < all_.slots.size(); slot++) {
      if (all_.slots[slot].storage == kNone) continue;
      auto& use = uses_[all_.slots[slot].storage];
      use.slots.push_back(slot);
      if (!all_.slots[slot].strided || all_.slots[slot].unplanned) use.plain = false;
      use.extent = std::max(use.extent, all_.slots[slot].extent);
    }
    for (size_t i = 0; i < all_.steps.size(); i++) note(all_.steps[i], static_cast<int64_t>(i));
  }

  // Whether the step has nothing left to do.
  bool elide(const Step& step, int64_t index) {
    if (step.gave.size() != 1 || step.gave[0].kind != Gave::kSlot || step.gave[0].slots[0] == kNone) return false;
    for (const auto& given : step.given) {
      if (given.kind > Given::kSlots) return false;
    }
    int copied = copied_argument(step.op->name);
    if (copied >= 0) return elide_copy(step, static_cast<size_t>(copied), index);
    if (step.op->name == "aten::cat") return elide_join(step, index, false);
    if (step.op->name == "aten::stack") return elide_join(step, index, true);
    return false;
  }

 private:
  // How steps use a storage.
  struct Use {
    std::vector<uint32_t> slots;
    int64_t first = -1, last = -1, last_write = -1;
    size_t extent = 0;
    bool plain = true;
  };

  const PlanSlot& slot(uint32_t index) const { return all_.slots[index]; }

  void note(const Step& step, int64_t index) {
    auto use = [&](uint32_t slot, bool written) {
      if (slot == kNone || all_.slots[slot].storage == kNone) return;
      auto& use = uses_[all_.slots[slot].storage];
      if (use.first < 0) use.first = index;
      use.last = index;
      if (written) use.last_write = index;
    };
    for (size_t i = 0; i < step.given.size(); i++) {
      for (uint32_t slot : step.given[i].slots) use(slot, writes(step, i));
    }
    for (const auto& gave : step.gave) {
      for (uint32_t slot : gave.slots) use(slot, false);
    }
  }

  bool is_made_here(uint32_t storage) const {
    return storages_[storage].kind == StorageInfo::kMade && uses_[storage].plain && uses_[storage].first >= 0;
  }

  // Whether source and copy may share memory from this step on.
  bool can_be_one(uint32_t source, uint32_t copy, int64_t step) const {
    if (source == copy || !is_made_here(source) || !is_made_here(copy) || uses_[copy].first != step) return false;
    const auto &mine = uses_[source], &its = uses_[copy];
    if (step >= boundary_ && mine.first < boundary_) return false;
    bool given = storages_[source].handed_out, copy_given = storages_[copy].handed_out;
    if (given && copy_given) return false;
    if (given && its.last >= boundary_) return false;
    if (copy_given && mine.last >= boundary_ && step < boundary_) return false;
    bool unwritten = mine.last_write <= step && its.last_write <= step;
    bool over = mine.last <= step && !given;
    return unwritten || over;
  }

  bool elide_copy(const Step& step, size_t argument, int64_t index) {
    if (argument >= step.given.size() || step.given[argument].kind != Given::kSlot) return false;
    const auto &source = slot(step.given[argument].slots[0]), &copy = slot(step.gave[0].slots[0]);
    if (!same_layout(source, copy) || !can_be_one(source.storage, copy.storage, index)) return false;
    bool whole = begin_of(source) == begin_of(copy) && uses_[source.storage].extent == uses_[copy.storage].extent;
    if (storages_[copy.storage].handed_out && !whole) return false;
    // A copy of a part would keep the whole source alive.
    size_t all = uses_[source.storage].extent;
    if (begin_of(source) < begin_of(copy) || (all > kSmallBytes && all > 2 * bytes_of(copy))) return false;
    size_t distance = begin_of(source) - begin_of(copy);
    // Ops on the copy expect the alignment of a new tensor.
    if (distance % Pool::kAlignment != 0) return false;
    merge(copy.storage, source.storage, distance);
    return true;
  }

  bool elide_join(const Step& step, int64_t index, bool stacks) {
    if (step.given.size() != 2 || step.given[0].kind != Given::kSlots || !step.given[1].constant.isInt()) return false;
    const auto& joined = slot(step.gave[0].slots[0]);
    const auto& pieces = step.given[0].slots;
    if (!are_pieces(joined, pieces, step.given[1].constant.toInt(), stacks)) return false;
    const auto& use = uses_[joined.storage];
    if (use.first != index || begin_of(joined) != 0 || use.extent != bytes_of(joined)) return false;
    size_t at = 0, left = pieces.size();
    for (uint32_t piece : pieces) {
      size_t bytes = bytes_of(slot(piece));
      if (can_lie_within(slot(piece), joined, at, index)) {
        merge(slot(piece).storage, joined.storage, at);
        left--;
      }
      at += bytes;
    }
    return left == 0;
  }

  // Whether all inputs have the dtype of the output, and each is one contiguous piece of it.
  bool are_pieces(const PlanSlot& joined, const std::vector<uint32_t>& pieces, int64_t dimension, bool stacks) const {
    auto dimensions = static_cast<int64_t>(joined.sizes.size());
    if (dimension < 0) dimension += dimensions;
    if (dimension < 0 || dimension >= dimensions || !is_contiguous(joined)) return false;
    for (int64_t i = 0; i < dimension; i++) {
      if (joined.sizes[i] != 1) return false;
    }
    size_t bytes = 0;
    for (uint32_t piece : pieces) {
      if (piece == kNone || slot(piece).dtype != joined.dtype || bytes_of(slot(piece)) == 0) return false;
      if (slot(piece).sizes.size() + (stacks ? 1 : 0) != joined.sizes.size()) return false;
      bytes += bytes_of(slot(piece));
    }
    return bytes == bytes_of(joined);
  }

  bool can_lie_within(const PlanSlot& piece, const PlanSlot& joined, size_t at, int64_t index) const {
    if (piece.storage == joined.storage || at % Pool::kAlignment != 0 || !is_contiguous(piece)) return false;
    if (begin_of(piece) != 0 || uses_[piece.storage].extent != bytes_of(piece) || !is_dense(piece)) return false;
    if (storages_[piece.storage].handed_out) return false;
    bool soon = index - uses_[piece.storage].first <= kSoon;
    if (!soon && bytes_of(joined) > kSmallBytes && 2 * bytes_of(piece) < bytes_of(joined)) return false;
    return can_be_joined(piece.storage, joined.storage, index);
  }

  // As can_be_one(), for an output of `cat` in which other inputs lie already.
  bool can_be_joined(uint32_t source, uint32_t joined, int64_t step) const {
    if (!is_made_here(source) || !is_made_here(joined)) return false;
    const auto &mine = uses_[source], &its = uses_[joined];
    if (step >= boundary_ && mine.first < boundary_) return false;
    if (storages_[joined].handed_out && mine.last >= boundary_ && step < boundary_) return false;
    return mine.last <= step || (mine.last_write <= step && its.last_write <= step);
  }

  // Moves all slots of `from` to `to`, `distance` bytes behind its beginning.
  void merge(uint32_t from, uint32_t to, size_t distance) {
    auto &old = uses_[from], &whole = uses_[to];
    for (uint32_t index : old.slots) {
      auto& slot = all_.slots[index];
      slot.storage = to;
      slot.offset += static_cast<int64_t>(distance / c10::elementSize(slot.dtype));
      slot.extent += distance;
      whole.slots.push_back(index);
    }
    whole.first = std::min(whole.first, old.first);
    whole.last = std::max(whole.last, old.last);
    whole.last_write = std::max(whole.last_write, old.last_write);
    whole.extent = std::max(whole.extent, old.extent + distance);
    storages_[to].handed_out = storages_[to].handed_out || storages_[from].handed_out;
    storages_[from].handed_out = false;
    old = {};
  }

  Recorded& all_;
  std::vector<StorageInfo>& storages_;
  int64_t boundary_;
  std::vector<Use> uses_;
};

}  // namespace

void elide_copies(Recorded& all, std::vector<StorageInfo>& storages, std::vector<size_t>& boundaries) {
  Elision elision(all, storages, static_cast<int64_t>(boundaries[0]));
  std::vector<Step> steps;
  std::vector<size_t> begins;
  for (size_t i = 0; i < all.steps.size(); i++) {
    while (begins.size() < boundaries.size() && i >= boundaries[begins.size()]) begins.push_back(steps.size());
    if (!elision.elide(all.steps[i], static_cast<int64_t>(i))) steps.push_back(std::move(all.steps[i]));
  }
  begins.resize(boundaries.size(), steps.size());
  boundaries = std::move(begins);
  all.steps = std::move(steps);
}

}  // namespace torchreel::graphs
