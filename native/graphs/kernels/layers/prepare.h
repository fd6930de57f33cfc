// Which layer does a call: the fastest that takes it.
#pragma once

#include <string_view>
#include <vector>

#include "graphs/kernels/kernel.h"

namespace torchreel::graphs {

inline constexpr std::string_view kLayers[] = {"handwritten", "structured", "out", "boxed"};  // the fastest first

// Gives nothing where the layer does not take the call.
std::unique_ptr<Kernel> prepare_in(std::string_view layer, const KernelCall& call);

}  // namespace torchreel::graphs
