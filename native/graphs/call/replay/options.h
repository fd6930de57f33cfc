// What a user chooses for the replays of a function: see `torchreel.graphed`. Read by every part of a Replay, written
// by nobody after it was made.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace torchreel::graphs {

// What to do if the caller still holds an output that a run would overwrite.
enum class Held { kBranch, kCopy, kError };

struct ReplayOptions {
  Held held = Held::kBranch;
  size_t branches = 8;  // graphs of one program in one thread, at most
  bool exact = true;
  int cores = 1;  // that independent kernels of one graph may run on
  // With kError: the message for a user who reads an output after the step that made it.
  std::shared_ptr<const std::string> over;
  std::vector<bool> fixed;  // for each input: whether each call is expected to give it at the same address
};

}  // namespace torchreel::graphs
