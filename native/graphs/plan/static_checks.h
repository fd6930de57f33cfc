// What a program must not do if it is to run on planned memory. StaticProgram calls each of these once, while it is
// made. They throw NotStatic, and change nothing.
#pragma once

#include "graphs/plan/static_program.h"

namespace torchreel::graphs {

[[noreturn]] void refuse(const tape::Step& step, const std::string& why);

// Ops that need Python, other ranks at their own time, or memory that is not planned. After the kinds of storages are
// known.
void check_steps(const StaticProgram& program);
// No op writes to memory that a sparse, quantized or nested tensor may share.
void check_unplanned(const StaticProgram& program);
// No op looks at memory around an input. After the extents of storages are known.
void check_inputs(const StaticProgram& program);
// Each segment of the backward may run alone: none uses what another one made or was given. After liveness.
void check_segments(const StaticProgram& program);

}  // namespace torchreel::graphs
