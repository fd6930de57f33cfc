// torch's RecordFunction -> events: one global callback, without context, lock or allocation on its way.
#pragma once

#include <ATen/record_function.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace torchreel {

class Recording;
class Model;

enum Wants { kInputsWanted = 1, kStackWanted = 2, kCountersWanted = 4, kModulesWanted = 8 };

// Begin and stop receiving calls for this recording. Do not require the GIL.
void attach_callbacks(const Recording& recording);
void detach_callbacks();

// What receives the calls of this thread, and of those that torch goes on to from it, for a model.
at::RecordFunctionCallback model_callback(const Model& model);

void mark(std::string_view name);
// One end of an arrow to another thread or process: out (false) or in (true).
void flow(std::string_view name, uint64_t id, bool in);

// Ranges of Intel's ITT or NVIDIA's NVTX for each call. Returns why not, or an empty text.
std::string emit_ranges(const std::string& to);
void stop_emitting();

}  // namespace torchreel
