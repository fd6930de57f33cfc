// Whether a graph is faster on two cores: found in runs that had to be made anyway. First each kernel is timed, then
// the graph runs in turns one way and the other, and the faster one stays.
#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

namespace torchreel::graphs {

class Contest {
 public:
  // Both in turns, `turns` times each. The second wins only if it is faster by a margin.
  static constexpr size_t kWarmUp = 2, kTimed = 5, kTurns = 15;
  static constexpr double kMargin = 0.9;

  // For tests: two cores are taken wherever kernels do not need each other, whatever the clock says.
  static inline std::atomic<bool> forced{false};

  bool is_over() const { return over_; }
  void end() { over_ = true; }

  // The least that each kernel took.
  void add_costs(const std::vector<double>& nanoseconds);
  bool has_costs() const { return timed_ >= (forced ? 1 : kTimed); }
  const std::vector<double>& costs() const { return costs_; }

  bool is_turn_of_second() const { return times_[1].size() < times_[0].size(); }
  void add_turn(bool of_second, double nanoseconds) { times_[of_second].push_back(nanoseconds); }
  bool is_decided() const { return times_[1].size() >= (forced ? 1 : kTurns); }
  bool is_won_by_second() const;

 private:
  bool over_ = false;
  size_t timed_ = 0;
  std::vector<double> costs_;
  std::vector<double> times_[2];
};

}  // namespace torchreel::graphs
