// Ways by which the bytes of a tensor leave for Python without an op: x.numpy(), x.tolist(), DLPack.
#pragma once

namespace torchreel::tape {

// Sees them while on, by standing in their place in torch's own table of methods. Needs the GIL.
void watch_escapes(bool on);

}  // namespace torchreel::tape
