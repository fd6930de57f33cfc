// What the tape registers with torch's dispatcher.
#pragma once

namespace torchreel::tape {

// Registers the fallback and the wrappers, once. They cost nothing to threads that do not trace.
void register_capture();
// Whether the generated wrappers are used, or the boxed fallback for every op.
void use_wrappers(bool on);

}  // namespace torchreel::tape
