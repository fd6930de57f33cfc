// What Python does to tensors and generators without an op: x.numpy(), x.tolist(), generator.manual_seed().
#pragma once

namespace torchreel::tape {

// Records them while it is on: replaces the functions in torch's own table of methods. Needs the GIL.
void watch_escapes(bool on);

}  // namespace torchreel::tape
