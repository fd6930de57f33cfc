// Which call of a trace lies in which, by time on each thread. No torch, no Python.
//
//     thread 1   [A          ]            B.parent = A, depth 1
//                   [B ] [C       ]       C.parent = A, depth 1: C outlives A
//                              . |. D     the moment D: parent = C, depth 1; A has ended
//
// Rows are sorted by their start, a call before those within it, so a parent stands before its children. Calls may
// overlap without one lying in the other: a row then has more ancestors than calls were open when it began. Moments are
// rows that hold nothing.
#pragma once

#include <cstdint>
#include <vector>

namespace torchreel {

class Nesting {
 public:
  using Ints = std::vector<int64_t>;

  // Threads are numbered from 0. All columns have the same length.
  Nesting(const Ints& thread, Ints start, Ints end, std::vector<uint8_t> moment);

  int64_t rows() const { return static_cast<int64_t>(start_.size()); }
  // For each row the innermost open call, or -1.
  const Ints& parent() const { return parent_; }
  // How many calls were open when each row began.
  const Ints& depth() const { return depth_; }

  // For each row the innermost of the chosen calls that was open when it began, or the row itself; -1 for none.
  Ints nearest(const uint8_t* chosen) const;
  // The same without the row itself.
  Ints around(const uint8_t* chosen) const;
  // The time of each call without that of its children.
  Ints self_times() const;
  // For each call the values of all these rows that began while it was open.
  Ints sums(const int64_t* rows, const int64_t* values, int64_t count) const;

 private:
  void find_parents(const Ints& thread);
  Ints inherited(const uint8_t* chosen) const;
  int64_t open_at(int64_t row, int64_t found, const Ints& inherited) const;
  void take_overhang(int64_t row, Ints& times) const;

  Ints start_;
  Ints end_;
  std::vector<uint8_t> moment_;
  Ints parent_;
  Ints depth_;
};

}  // namespace torchreel
