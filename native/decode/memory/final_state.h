// The memory that was in use when the recording ended -> the tables `blocks` and `segments`. No torch, no Python.
#pragma once

#include "decode/memory/pairing.h"
#include "decode/tables/batches.h"

namespace torchreel {

// Blocks of a segment tile it: what lies between those that live is free.
void add_final_state(const MemoryPairing& memory, Batches& batches);

}  // namespace torchreel
