// The steps of a training loop, by the tick at which each began. No torch, no Python.
//
// The Decoder owns them. They come from the definitions, or from whoever restricts the decoder to windows.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "decode/spool/definitions.h"

namespace torchreel {

class Steps {
 public:
  using Step = std::pair<uint64_t, uint64_t>;  // number and tick

  // Steps of an optimizer do not count where the program counts by hand.
  explicit Steps(const std::vector<Definitions::Step>& defined);

  void replace(std::vector<Step> steps) { steps_ = std::move(steps); }
  // The number of the step that a tick lies in, or -1. `begun` belongs to the caller, whose ticks only grow: how many
  // steps have begun.
  int32_t at(uint64_t tick, size_t& begun) const {
    while (begun < steps_.size() && steps_[begun].second <= tick) begun++;
    return begun > 0 ? static_cast<int32_t>(steps_[begun - 1].first) : -1;
  }
  const std::vector<Step>& all() const { return steps_; }

 private:
  std::vector<Step> steps_;
};

}  // namespace torchreel
