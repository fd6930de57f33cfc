// The generated wrappers of the ops that real models use: `python -m torchreel.tape.codegen.generator` writes them at
// build time.
#pragma once

#include <torch/library.h>

namespace torchreel::tape {

void register_wrappers(torch::Library& aten);

}  // namespace torchreel::tape
