// The history and state of CPU memory as a pickle in the schema of torch.cuda.memory._snapshot.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace torchreel {

struct SnapshotParts {
  bool traces = true;            // the history too
  std::optional<uint64_t> pool;  // only segments of this private pool, or with 0 of none
};

// Needs the GIL. `torch_version` is written into it.
std::string snapshot_pickle(const std::string& torch_version, const SnapshotParts& parts);

// The stack of the living block that begins at an address, as a pickle of its frames; of None if there is no such
// block, or no stack of it. Needs the GIL.
std::string traceback_pickle(uint64_t address);

}  // namespace torchreel
