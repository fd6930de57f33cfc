// Ops of a program in Python -> steps of a plan. Needs the GIL.
#pragma once

#include <pybind11/pybind11.h>

#include "tape/replay/plan.h"
#include "tape/steps/kept.h"

namespace torchreel::tape {

// Throws std::runtime_error with a sentence if the running torch does not know an op or a value.
Step step_of(const pybind11::handle& op, uint32_t index, const Kept& kept);
PlanSlot slot_of(const pybind11::handle& slot);

}  // namespace torchreel::tape
