#include "contest.h"

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

bool Contest::is_won_by_second() const { return forced || median(times_[1]) < kMargin * median(times_[0]); }

}  // namespace torchreel::graphs
