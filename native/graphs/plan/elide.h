// Copy elision: the source of a copy is made at the address of the copy.
#pragma once

#include <vector>

#include "graphs/plan/static_program.h"

namespace torchreel::graphs {

// Lets a copy and its source share one storage, and drops steps that have nothing left to do. `boundaries` are the
// steps with which the segments of the backward begin; they are updated.
//
// Two storages become one only if nobody can tell:
// - Both are made in this program, on the same side of a boundary: the backward leaves saved memory as it is.
// - After the copy, nothing is written to either of them, or only the copy is used.
// - The caller gets at most one of them. Then the backward does not read the other: the caller may write to its own.
// - The storage that the caller gets is as large as it would be.
void elide_copies(Recorded& all, std::vector<StorageInfo>& storages, std::vector<size_t>& boundaries);

}  // namespace torchreel::graphs
