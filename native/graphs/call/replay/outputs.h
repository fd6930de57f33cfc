// The tensors that the caller gets from one run: on leased memory of the pool, on copies of it, or on the memory of
// inputs and of the function's own tensors.
//
// A Replay makes one Outputs on its stack after each run of a graph, and asks it for the outputs and the gradients that
// the run leaves. The caller holds Pool::running.
#pragma once

#include <c10/util/SmallVector.h>

#include <cstdint>
#include <utility>

#include "graphs/call/replay/options.h"
#include "graphs/plan/static_program.h"
#include "graphs/run/graph.h"

namespace torchreel::graphs {

class Outputs {
 public:
  // All that is given outlives it. With `copies` the caller gets copies of the graph's memory, else leases on it.
  Outputs(const StaticProgram& program, const ReplayOptions& options, Graph& graph, const Tensors& given, bool copies)
      : program_(program), options_(options), graph_(graph), given_(given), copies_(copies) {}
  Outputs(const Outputs&) = delete;

  // An undefined tensor for kNone. Two calls for slots of one storage give tensors that share it.
  at::Tensor at(uint32_t slot);

 private:
  // Undefined if none of these inputs or gradients has the storage of the slot.
  at::Tensor on_given(uint32_t slot, const std::vector<uint32_t>& slots) const;
  // Of an output of the graph, by its index.
  const c10::Storage& storage_for(uint32_t output);

  const StaticProgram& program_;
  const ReplayOptions& options_;
  Graph& graph_;
  const Tensors& given_;
  bool copies_;
  c10::SmallVector<std::pair<uint32_t, c10::Storage>, 4> known_;  // storages that this run has given out
};

}  // namespace torchreel::graphs
