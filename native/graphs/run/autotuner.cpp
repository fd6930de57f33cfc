#include "graphs/run/autotuner.h"

#include <algorithm>

namespace torchreel::graphs {

namespace {

double median(std::vector<double> values) {
  auto middle = values.begin() + static_cast<long>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

void Autotuner::add_costs(const std::vector<double>& nanoseconds) {
  if (timed_++ == 0) costs_ = nanoseconds;
  for (size_t i = 0; i < costs_.size(); i++) costs_[i] = std::min(costs_[i], nanoseconds[i]);
}

// The first candidate of those with the fewest turns.
Autotuner::Candidate Autotuner::next() const {
  int best = kAsRecorded;
  for (int candidate = kOneThread; candidate <= last_; candidate++) {
    if (times_[candidate].size() < times_[best].size()) best = candidate;
  }
  return static_cast<Candidate>(best);
}

Autotuner::Candidate Autotuner::winner() const {
  if (forced) return last_;
  int best = kAsRecorded;
  double least = median(times_[best]);
  for (int candidate = kOneThread; candidate <= last_; candidate++) {
    double took = median(times_[candidate]);
    if (took >= kMargin * least) continue;
    best = candidate;
    least = took;
  }
  return static_cast<Candidate>(best);
}

}  // namespace torchreel::graphs
