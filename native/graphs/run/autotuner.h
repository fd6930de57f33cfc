// Which way of running a graph is the fastest? The autotuner finds out in runs that had to be made anyway. First each
// kernel is timed, then the graph runs in turns one way and the others, and the fastest one stays.
#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

namespace torchreel::graphs {

class Autotuner {
 public:
  // As recorded, with all threads; as recorded, but kernels that gain nothing by it on one thread; and some of them on
  // two cores.
  enum Candidate { kAsRecorded, kOneThread, kTwoCores };

  static constexpr size_t kWarmUp = 2, kTimed = 5, kTurns = 15;
  // What the next candidate may take, of the time of the best before it: the one before is simpler.
  static constexpr double kMargin = 0.9;

  // For tests: two cores are taken wherever kernels do not need each other, whatever the clock says.
  static inline std::atomic<bool> forced{false};

  bool is_over() const { return over_; }
  void end() { over_ = true; }

  // The least that each kernel took.
  void add_costs(const std::vector<double>& nanoseconds);
  bool has_costs() const { return timed_ >= (forced ? 1 : kTimed); }
  const std::vector<double>& costs() const { return costs_; }

  // Those up to this one take part.
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
