// Ops whose kernel only calls another op, which has a faster kernel here.
#pragma once

#include <optional>

#include "graphs/kernels/kernel.h"

namespace torchreel::graphs {

// The call that the op makes; nothing if it has a kernel of its own.
std::optional<KernelCall> forwarded(const KernelCall& call);

}  // namespace torchreel::graphs
