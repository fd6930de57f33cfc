// Kernels for numbers that pass through Python: those that leave for it, and those that it computed of them.
#pragma once

#include <memory>
#include <vector>

#include "graphs/kernels/kernel.h"
#include "graphs/plan/loans.h"
#include "tape/plan.h"

namespace torchreel::graphs {

// Throws GuardFailure where the number is another than the recorded one. Writes it to `numbers`, which must outlive it.
std::unique_ptr<Kernel> number_kernel(const KernelCall& call, const tape::Step& step, std::vector<double>& numbers,
                                      std::unique_ptr<Loans> loans);
// For an op with arguments that are formulas of such numbers.
std::unique_ptr<Kernel> formula_kernel(const KernelCall& call, const tape::Step& step,
                                       const std::vector<double>& numbers, std::unique_ptr<Loans> loans);

}  // namespace torchreel::graphs
