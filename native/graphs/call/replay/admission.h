// Whether a call may be replayed at all: is the function's state where it was recorded, and is no memory shared that
// the run would write?
//
// A Replay owns one Admission, and asks it at the beginning of each run, before it chooses a graph. Nothing in it
// changes after it was made, so all threads may ask at the same time. It allocates nothing and writes nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "graphs/call/replay/outcome.h"
#include "graphs/guards/tensor_guards.h"
#include "graphs/plan/static_program.h"

namespace torchreel::graphs {

class Admission {
 public:
  // The program outlives it.
  explicit Admission(const StaticProgram& program);

  // kDone if the call may run. With `grad`, autograd is on around the call.
  Outcome check(const Tensors& given, bool grad) const;
  // Counts the writes to external tensors that the function reads and does not write itself.
  uint64_t writes_of_others() const;

 private:
  struct External {
    c10::TensorImpl* tensor;
    const c10::StorageImpl* storage;
    bool requires_grad;
  };

  bool state_is_in_place(bool grad) const;
  bool inputs_are_in_place(const Tensors& given) const;
  bool shares_memory(const Tensors& given) const;
  bool would_accumulate() const;

  const StaticProgram& program_;
  std::vector<External> externals_;
  TensorGuards tensor_guards_;                    // on the externals
  std::vector<c10::TensorImpl*> only_read_;       // externals that the function does not write
  std::vector<const c10::StorageImpl*> written_;  // external storages that the function writes
  std::vector<uint32_t> external_inputs_;         // indices of inputs that are tensors of the function's own
};

}  // namespace torchreel::graphs
