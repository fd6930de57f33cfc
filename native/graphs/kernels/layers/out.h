// The layer of out= overloads: torch's own kernel, told to write to memory that is there.
#pragma once

#include <string_view>
#include <unordered_map>
#include <utility>

#include "graphs/kernels/kernel.h"

namespace torchreel::graphs {

using OutOverloads = std::unordered_map<std::string_view, std::pair<const char*, const char*>>;

// Generated: name and overload of the op with out=, by the op without. Only those with a kernel of their own: the
// others call the op without, and copy.
const OutOverloads& out_overloads();

// Gives nothing where there is no such overload, or one that does not keep to the memory that it is given.
std::unique_ptr<Kernel> prepare_out(const KernelCall& call);

}  // namespace torchreel::graphs
