// Tensors without planned memory: sparse, quantized and nested ones, and those of other devices. Ops on them run as in
// eager, between kernels on planned memory.
#pragma once

#include <memory>
#include <vector>

#include "graphs/kernels/kernel.h"
#include "graphs/plan/loans.h"
#include "graphs/plan/static_program.h"

namespace torchreel::graphs {

// `call` has the tensors on planned memory. The unplanned ones are in `values`, by slot, which must outlive the kernel.
// A run drops those that no later step needs. It throws ShapeChange if a result has other sizes than recorded, and
// GuardFailure if a number differs.
std::unique_ptr<Kernel> unplanned_kernel(const KernelCall& call, const StaticProgram& program, size_t step,
                                         Tensors& values, std::unique_ptr<Loans> loans);

}  // namespace torchreel::graphs
