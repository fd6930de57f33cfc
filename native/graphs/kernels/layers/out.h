// The layer of out= overloads: torch's own kernel writes to planned memory.
#pragma once

#include <string_view>
#include <unordered_map>
#include <utility>

#include "graphs/kernels/kernel.h"

namespace torchreel::graphs {

using OutOverloads = std::unordered_map<std::string_view, std::pair<const char*, const char*>>;

// Generated: name and overload of the op with out=, by the op without. Only those that have a kernel: the others call
// the op without out=, and copy.
const OutOverloads& out_overloads();

// Null if there is no such overload, or if it does not write to the memory that it is given.
std::unique_ptr<Kernel> prepare_out(const KernelCall& call);

}  // namespace torchreel::graphs
