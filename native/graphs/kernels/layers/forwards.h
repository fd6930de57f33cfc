// Ops whose kernel does nothing but call another op, which has a better kernel here.
#pragma once

#include <optional>

#include "graphs/kernels/kernel.h"

namespace torchreel::graphs {

// The call that this one comes to; nothing where it is the op's own.
std::optional<KernelCall> forwarded(const KernelCall& call);

}  // namespace torchreel::graphs
