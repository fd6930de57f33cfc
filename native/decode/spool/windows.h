// The spans of time that a decoder shows, as if the recording had been on in them alone. No torch, no Python.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace torchreel {

// A span of ticks, from and to.
using Window = std::pair<uint64_t, uint64_t>;

// Owned by the Decoder; all that decides what is shown reads it. Without a window everything is shown.
class Windows {
 public:
  void set(std::vector<Window> windows) {
    windows_ = std::move(windows);
    std::sort(windows_.begin(), windows_.end());
  }
  bool show_all() const { return windows_.empty(); }
  bool show(uint64_t tick) const {
    if (windows_.empty()) return true;
    auto in = [tick](const Window& window) { return window.first <= tick && tick < window.second; };
    return std::any_of(windows_.begin(), windows_.end(), in);
  }
  // Unless all is shown.
  uint64_t begin() const { return windows_.front().first; }
  uint64_t end() const { return windows_.back().second; }

 private:
  std::vector<Window> windows_;
};

}  // namespace torchreel
