#include "decode/calls/steps.h"

#include <algorithm>

namespace torchreel {

using namespace layout;

Steps::Steps(const std::vector<Definitions::Step>& defined) {
  auto by_hand = [](const Definitions::Step& step) { return step.kind == kStepByHand; };
  bool counts_by_hand = std::any_of(defined.begin(), defined.end(), by_hand);
  for (const auto& step : defined) {
    if (!counts_by_hand || step.kind != kOptimizerStep) steps_.emplace_back(step.number, step.tick);
  }
  std::stable_sort(steps_.begin(), steps_.end(), [](const Step& a, const Step& b) { return a.second < b.second; });
}

}  // namespace torchreel
