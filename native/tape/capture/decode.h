// What was captured -> the program's own words in Python (torchreel.program.model). Needs the GIL.
#pragma once

#include <pybind11/pybind11.h>

#include "tape/capture/capture.h"

namespace torchreel::tape {

// Ops, slots, stacks and frames as lists of the given classes, by their names in the model.
pybind11::dict decode(Capture& capture, const pybind11::dict& model);

}  // namespace torchreel::tape
