// Tensors without fixed memory: sparse, quantized and nested ones, and those of other devices. An op that has one runs
// as it does eagerly, between kernels that are bound.
#pragma once

#include <memory>
#include <vector>

#include "graphs/kernels/kernel.h"
#include "graphs/plan/loans.h"
#include "graphs/plan/static_program.h"

namespace torchreel::graphs {

// `call` has the tensors that lie in their place; the unplanned ones are in `values`, by slot, which must outlive the
// kernel. It lets go of those that no step after it needs. Throws ShapeChange where a result has other sizes than the
// recorded one, and GuardFailure where a number is another one.
std::unique_ptr<Kernel> unplanned_kernel(const KernelCall& call, const StaticProgram& program, size_t step,
                                         Tensors& values, std::unique_ptr<Loans> loans);

}  // namespace torchreel::graphs
