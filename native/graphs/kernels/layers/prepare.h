// The choice of a layer for a call: the fastest one that takes it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "graphs/kernels/kernel.h"

namespace torchreel::graphs {

inline constexpr std::string_view kLayers[] = {"handwritten", "structured", "out", "boxed"};  // the fastest first

// Null if the layer does not take the call.
std::unique_ptr<Kernel> prepare_in(std::string_view layer, const KernelCall& call);

// The layers that know the op, the fastest first. "boxed" takes any.
std::vector<std::string> layers_of(const tape::OpInfo& op);

}  // namespace torchreel::graphs
