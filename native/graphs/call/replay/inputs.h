// How the inputs of a call reach a graph: copied into its memory, or read at the caller's addresses.
//
// A Replay owns one Inputs. Branches ask it which inputs a new graph reads in place, and whether those of a call lie
// there; a run calls copy_in() before the kernels, a backward copy_again(). It changes nothing of its own after it was
// made. Callers hold Pool::running.
#pragma once

#include <cstdint>
#include <vector>

#include "graphs/plan/static_program.h"
#include "graphs/run/graph.h"

namespace torchreel::graphs {

class Inputs {
 public:
  // The addresses at which the large inputs of the last call lay, by input: one list for each thread.
  using Addresses = std::vector<const void*>;

  // The program outlives it. `fixed` as in ReplayOptions.
  Inputs(const StaticProgram& program, std::vector<bool> fixed);

  // Whether each input that the graph reads in place lies where the graph reads it.
  static bool lie_as_bound(const Graph& graph, const Tensors& given) {
    const auto& bound_inputs = graph.bound_inputs();
    for (size_t i = 0; i < bound_inputs.size(); i++) {
      if (bound_inputs[i] != nullptr && bound_inputs[i] != given[i].const_data_ptr()) return false;
    }
    return true;
  }
  // For a new graph: the addresses of the inputs that it should read in place, and null for the others.
  std::vector<char*> to_bind(const Tensors& given, const Addresses& last) const;
  void note_addresses(const Tensors& given, Addresses& last) const;

  // `given` must stay until the run is over.
  void copy_in(Graph& graph, const Tensors& given) const;
  // Copies the inputs that a backward reads once more, from where they lie now, into the graph of its forward.
  static void copy_again(Graph& graph, const std::vector<uint32_t>& inputs, const Tensors& given);

 private:
  const StaticProgram& program_;
  std::vector<bool> fixed_;
  std::vector<uint32_t> large_;      // indices of inputs that are better read in place, if they stay there
  std::vector<uint32_t> unplanned_;  // indices of inputs without fixed memory
};

}  // namespace torchreel::graphs
