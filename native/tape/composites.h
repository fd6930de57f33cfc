// Ops that torch takes apart above the tape, and that yet do some of their work themselves instead of by other ops.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace torchreel::tape {

// Once. From then on they are recorded whole, or what they read of a tensor's values is.
void register_composites();
// Whether it is one of them.
bool is_recorded_whole(const c10::OperatorHandle& op);

}  // namespace torchreel::tape
