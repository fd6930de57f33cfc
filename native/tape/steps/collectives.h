// The ops of torch.distributed: what their schemas do not say, and how to wait until one is done.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <string_view>

namespace torchreel::tape {

// Whether all ranks take part. Such an op goes on after it has returned.
bool is_collective(std::string_view name);
// Whether it sends from one rank to another. The ranks must agree on the order of such ops.
bool is_between_two(std::string_view name);
// Whether Gloo copies its results when it is waited for: by ops that a tape sees, from memory that the tape does not
// know.
bool is_finished_by_waiting(std::string_view name);
// Whether it writes its first argument, though its schema does not say so.
bool writes_first(std::string_view name);

// Calls a collective, and waits until it is done. Releases the GIL meanwhile if it is held: threads of the process
// group may need it.
void run_collective(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace torchreel::tape
