// The history and state of CPU memory as a pickle in the schema of torch.cuda.memory._snapshot.
#pragma once

#include <string>

namespace torchreel {

// Needs the GIL. `torch_version` is written into it.
std::string snapshot_pickle(const std::string& torch_version);

}  // namespace torchreel
