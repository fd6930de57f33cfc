// Finds copies that need not be made: what is copied is made where the copy would lie.
#pragma once

#include <vector>

#include "graphs/plan/static_program.h"

namespace torchreel::graphs {

// Lets tensors of a copy and of what it is made of share one storage, and drops steps that have nothing left to do.
// `boundaries` are the steps that the backward and its further segments begin with, before and after.
//
// Two storages become one only if nobody can tell:
// - both are made here, and on the same side of the boundary: the backward leaves what the forward saved as it is;
// - from the copy on, nothing is written to either, or only the copy is used any more;
// - the caller gets at most one of them, and the other is then none that the backward reads: the caller may write to
//   what it got, meanwhile;
// - what the caller gets has just the memory that it would have.
void elide_copies(Recorded& all, std::vector<StorageInfo>& storages, std::vector<size_t>& boundaries);

}  // namespace torchreel::graphs
