// Kernels for numbers that pass through Python: those that ops give to it, and those that it computes from them.
#pragma once

#include <memory>
#include <vector>

#include "graphs/kernels/kernel.h"
#include "graphs/plan/loans.h"
#include "tape/replay/plan.h"

namespace torchreel::graphs {

// For an op that gives a number. Its run throws GuardFailure if the number differs from the recorded one, and writes it
// to `numbers`, which must outlive the kernel.
std::unique_ptr<Kernel> number_kernel(const KernelCall& call, const tape::Step& step, std::vector<double>& numbers,
                                      std::unique_ptr<Loans> loans);
// For an op with arguments that are formulas of such numbers.
std::unique_ptr<Kernel> formula_kernel(const KernelCall& call, const tape::Step& step,
                                       const std::vector<double>& numbers, std::unique_ptr<Loans> loans);

}  // namespace torchreel::graphs
