#include "graphs/run/contest.h"

#include <algorithm>

namespace torchreel::graphs {

namespace {

double median(std::vector<double> values) {
  auto middle = values.begin() + static_cast<long>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

void Contest::add_costs(const std::vector<double>& nanoseconds) {
  if (timed_++ == 0) costs_ = nanoseconds;
  for (size_t i = 0; i < costs_.size(); i++) costs_[i] = std::min(costs_[i], nanoseconds[i]);
}

// The first of those that had the fewest turns.
Contest::Way Contest::next() const {
  int best = kAsRecorded;
  for (int way = kOneThread; way <= last_; way++) {
    if (times_[way].size() < times_[best].size()) best = way;
  }
  return static_cast<Way>(best);
}

Contest::Way Contest::winner() const {
  if (forced) return last_;
  int best = kAsRecorded;
  double least = median(times_[best]);
  for (int way = kOneThread; way <= last_; way++) {
    double took = median(times_[way]);
    if (took >= kMargin * least) continue;
    best = way;
    least = took;
  }
  return static_cast<Way>(best);
}

}  // namespace torchreel::graphs
