// What the history knows of the ops that allocate: the compiled region that they are in, and the forward call of a
// backward.
#pragma once

#include <string>

namespace torchreel {

// From now on the history is told of the compiled regions that threads enter and leave. Torch calls an observer for
// each op then.
void watch_regions(bool on);
// From now on it is told of differentiable calls and of their backwards.
void watch_forwards(bool on);

// Whether torch's anomaly detection is on.
bool detects_anomalies();
// Of the backward that this thread runs: the lines of its forward call as anomaly detection has kept them, each
// followed by a null byte. Empty if there are none. May take the GIL.
std::string anomaly_lines();

}  // namespace torchreel
