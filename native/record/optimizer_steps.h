// Counts the steps of a program by its first optimizer: torch opens a range around each step, and its end is the end of
// the step. Nothing of Python's is changed and no Python runs, so that functions that are traced, guarded or graphed
// meanwhile do not see it.
#pragma once

#include <cstdint>

namespace torchreel {

// From now on each step of the optimizer defines a step of the recording; `first` is the number of the one under way,
// `begun` whether the recording knows of it already. Needs the GIL, and a recording that runs.
void count_optimizer_steps(int64_t first, bool begun);

// Returns whether the recording knows of the first step. Needs the GIL.
bool stop_counting_optimizer_steps();

}  // namespace torchreel
