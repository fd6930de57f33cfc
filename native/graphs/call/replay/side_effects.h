// What a run changes beside its outputs: inputs that the function writes, version counters, gradients.
//
// Branches call release_gradients() before they choose a graph, so that a gradient which the function clears does not
// stand in the way. A Replay calls leave_side_effects() after the kernels of a forward, below autograd, if
// has_side_effects() was true when the Replay was made. Callers hold Pool::running.
#pragma once

#include "graphs/call/replay/outputs.h"
#include "graphs/plan/static_program.h"
#include "graphs/run/graph.h"

namespace torchreel::graphs {

// Whether a run writes to more than the memory of its kernels.
bool has_side_effects(const StaticProgram& program);

// For the gradients that the function clears. If nobody but their owner holds one, and a run of `graph` made it, its
// lease passes to the next run of that graph, which writes the same tensor again. Other gradients are dropped.
void release_gradients(const StaticProgram& program, const Graph* graph);

void leave_side_effects(const StaticProgram& program, Graph& graph, const Tensors& given, Outputs& outputs);

}  // namespace torchreel::graphs
