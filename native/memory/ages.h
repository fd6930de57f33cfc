// When the parts of a free block were freed. Blocks that are cut and joined all the time keep the ages of their parts:
// a part that nobody uses grows old beside one that is in use all the time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace torchreel {

class Ages {
 public:
  static constexpr uint64_t kNotResident = 0;  // the time of pages that the system has, or that nobody has touched

  // A block of one part.
  Ages(size_t bytes, uint64_t freed_ms) : count_(1) { parts_[0] = {bytes, freed_ms}; }

  Ages(const Ages& other) : count_(other.count_) {
    for (size_t i = 0; i < count_; i++) parts_[i] = other.parts_[i];
  }

  // The block grows at its end by another.
  void append(const Ages& right) {
    size_t next = 0;
    if (alike(parts_[count_ - 1], right.parts_[0])) join(parts_[count_ - 1], right.parts_[next++]);
    while (next < right.count_) {
      if (count_ == kMost) join_closest();
      parts_[count_++] = right.parts_[next++];
    }
  }

  // The block loses its first bytes, fewer than it has.
  void cut(size_t bytes) {
    size_t gone = 0;
    while (bytes >= parts_[gone].bytes) bytes -= parts_[gone++].bytes;
    count_ -= gone;
    if (gone > 0) {
      for (size_t i = 0; i < count_; i++) parts_[i] = parts_[i + gone];
    }
    parts_[0].bytes -= bytes;
  }

  // Calls visitor(offset, bytes) for what is resident and was freed before, which then is not resident.
  template <class Visitor>
  void expire(uint64_t freed_before_ms, Visitor visitor) {
    size_t offset = 0, begin = 0, old = 0;
    for (size_t i = 0; i < count_; offset += parts_[i++].bytes) {
      if (!is_old(parts_[i], freed_before_ms)) continue;
      if (old == 0 || begin + old != offset) {
        if (old > 0) visitor(begin, old);
        begin = offset;
        old = 0;
      }
      old += parts_[i].bytes;
      parts_[i].freed_ms = kNotResident;
    }
    if (old > 0) visitor(begin, old);
  }

  // The most bytes in a row that expire() would visit.
  size_t expired(uint64_t freed_before_ms) const {
    size_t most = 0, row = 0;
    for (size_t i = 0; i < count_; i++) {
      row = is_old(parts_[i], freed_before_ms) ? row + parts_[i].bytes : 0;
      most = std::max(most, row);
    }
    return most;
  }

  uint64_t newest() const {
    uint64_t time = 0;
    for (size_t i = 0; i < count_; i++) time = std::max(time, parts_[i].freed_ms);
    return time;
  }

 private:
  struct Part {
    size_t bytes;
    uint64_t freed_ms;
  };
  static constexpr size_t kMost = 16;
  static constexpr uint64_t kAlike = 16;  // milliseconds that make no difference

  static bool is_old(const Part& part, uint64_t before) {
    return part.freed_ms != kNotResident && part.freed_ms < before;
  }

  static uint64_t apart(const Part& one, const Part& other) {
    return one.freed_ms > other.freed_ms ? one.freed_ms - other.freed_ms : other.freed_ms - one.freed_ms;
  }
  static bool alike(const Part& one, const Part& other) {
    bool resident = one.freed_ms != kNotResident && other.freed_ms != kNotResident;
    return one.freed_ms == other.freed_ms || (resident && apart(one, other) <= kAlike);
  }
  static void join(Part& left, const Part& right) {
    left = {left.bytes + right.bytes, std::max(left.freed_ms, right.freed_ms)};
  }

  // Makes room for one part more: of all neighbours, those of the most similar age become one.
  void join_closest() {
    size_t best = 1;
    for (size_t i = 2; i < count_; i++) {
      if (apart(parts_[i - 1], parts_[i]) < apart(parts_[best - 1], parts_[best])) best = i;
    }
    join(parts_[best - 1], parts_[best]);
    std::copy(parts_ + best + 1, parts_ + count_, parts_ + best);
    count_--;
  }

  size_t count_;
  Part parts_[kMost];
};

}  // namespace torchreel
