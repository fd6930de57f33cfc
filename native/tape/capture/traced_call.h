// One traced call of a function: begins a Capture, ends it, and answers what Python asks of it afterwards.
//
// Python owns one for each traced call (`torchreel._tape.Capture`). It begins with its constructor and ends with
// end(). The questions come after that, in the thread that traced, with the GIL held.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tape/capture/capture.h"
#include "tape/steps/kept.h"

namespace torchreel::tape {

class TracedCall {
 public:
  // A tensor that no op of the tape made.
  struct External {
    uint32_t slot;
    at::Tensor tensor;
    bool alone;  // nobody else holds it: it was made during the call, but by no op
  };
  using SlotPairs = std::vector<std::pair<uint32_t, int64_t>>;  // -1 for a slot that the tape does not know

  // Throws if a tape is being recorded.
  TracedCall(const std::vector<at::Tensor>& inputs, bool hashes);
  TracedCall(const TracedCall&) = delete;

  // Slots of the results; -1 for a result that is no tensor.
  std::vector<int64_t> end(const std::vector<at::Tensor>& results);
  // Frees the last capture. Else it is kept until the next one begins, because ops of other threads may still write to
  // it.
  static void forget_last();

  Capture& capture() const { return *capture_; }
  const std::vector<uint32_t>& input_slots() const { return input_slots_; }
  std::vector<External> externals() const;
  // The same without numbers that torch wrapped as tensors.
  std::vector<External> tensors_from_outside() const;
  // Leaves, each with the gradient that it has at the end: those that an op of the tape made ...
  SlotPairs gradients() const { return gradients_of_leaves(true); }
  // ... and those that ops only read or wrote.
  SlotPairs old_gradients() const { return gradients_of_leaves(false); }
  // Externals that have another storage or other sizes at the end, with their slot at the end.
  SlotPairs rebound() const;
  // For each input, what Python asked of it: a mask of Asked.
  std::vector<int> asked_inputs() const;
  // The index of the first op of a backward; the number of ops if there is none.
  size_t first_backward() const;
  // Generators and objects that a file cannot hold.
  Kept kept() const;

 private:
  SlotPairs gradients_of_leaves(bool made) const;

  std::shared_ptr<Capture> capture_;
  std::vector<uint32_t> input_slots_;
};

}  // namespace torchreel::tape
