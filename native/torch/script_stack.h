// TorchScript's interpreter, as far as it runs on the calling thread. Does not require the GIL.
#pragma once

#include <torch/csrc/jit/frontend/source_range.h>

#include <cstdint>
#include <string>

#include "cpython/frames.h"

namespace torchreel {

// Where the text was written: a model that was saved has source of its own, made from the user's.
torch::jit::SourceRange original(const torch::jit::SourceRange& range);

// Frozen models are made safe before they run, as long as one of these asks where in TorchScript a thread stands.
enum class ScriptReader { kRecorder = 1, kHistory = 2 };
void read_scripts(ScriptReader reader, bool on);

}  // namespace torchreel
