// Composite ops, of which a tape sees only parts, but which do some of their work without ops.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace torchreel::tape {

// Registers them, once. From then on they are recorded whole, or what they read of a tensor's values is recorded.
void register_composites();
// Whether it is one of them.
bool is_recorded_whole(const c10::OperatorHandle& op);

}  // namespace torchreel::tape
