// Ops that torch takes apart above the tape, and that yet do some of their work themselves instead of by other ops.
#pragma once

namespace torchreel::tape {

// Once. From then on they are recorded whole, or what they read of a tensor's values is.
void register_composites();

}  // namespace torchreel::tape
