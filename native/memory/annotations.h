// The user's ranges -> the history of memory, by a RecordFunction callback for them alone.
#pragma once

namespace torchreel {

// From now on, in all threads. Does not require the GIL.
void keep_annotations(bool on);

}  // namespace torchreel
