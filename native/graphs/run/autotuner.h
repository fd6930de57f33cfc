// Finds the fastest way to run a graph, in runs that are made anyway. First it times each kernel, then the candidates
// run in turns, and the fastest one stays.
#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

namespace torchreel::graphs {

class Autotuner {
 public:
  // As recorded, with all threads; the same with one thread for kernels that gain nothing by more; and the same with
  // independent kernels on two cores.
  enum Candidate { kAsRecorded, kOneThread, kTwoCores };

  static constexpr size_t kWarmUp = 2, kTimed = 5, kTurns = 15;
  // A candidate must need at most this part of the time of the best before it, which is simpler.
  static constexpr double kMargin = 0.9;

  // For tests: independent kernels run on two cores, whatever the clock says.
  static inline std::atomic<bool> forced{false};

  bool is_over() const { return over_; }
  void end() { over_ = true; }

  // The least time of each kernel.
  void add_costs(const std::vector<double>& nanoseconds);
  bool has_costs() const { return timed_ >= (forced ? 1 : kTimed); }
  const std::vector<double>& costs() const { return costs_; }

  // The last candidate that takes part.
  void begin(Candidate last) { last_ = last; }
  Candidate next() const;
  void add(Candidate candidate, double nanoseconds) { times_[candidate].push_back(nanoseconds); }
  bool is_decided() const { return times_[last_].size() >= (forced ? 1 : kTurns); }
  Candidate winner() const;

 private:
  bool over_ = false;
  Candidate last_ = kAsRecorded;
  size_t timed_ = 0;
  std::vector<double> costs_;
  std::vector<double> times_[3];
};

}  // namespace torchreel::graphs
