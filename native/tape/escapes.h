// What Python does to tensors and generators without an op: x.numpy(), x.tolist(), generator.manual_seed().
#pragma once

namespace torchreel::tape {

// Sees them while on, by standing in their place in torch's own table of methods. Needs the GIL.
void watch_escapes(bool on);

}  // namespace torchreel::tape
