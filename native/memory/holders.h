// Who holds the memory of CPU tensors, in words: for the error when there is none left.
#pragma once

#include <cstddef>
#include <string>

namespace torchreel {

// Bytes that could still be had: below the heap's limit, or of the machine.
size_t available_bytes();

// The sentence for a block of this size that cannot be had, with the largest holders. Takes the heap's gate.
std::string describe_out_of_memory(size_t bytes, size_t available);

}  // namespace torchreel
