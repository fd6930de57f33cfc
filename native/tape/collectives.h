// The ops of torch.distributed: what their schemas do not say, and how to wait until one is done.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <string_view>

namespace torchreel::tape {

// All ranks take part, and it goes on after it has returned.
bool is_collective(std::string_view name);
// From one rank to another: which of two comes first is for the ranks to agree on.
bool is_between_two(std::string_view name);
// Gloo copies what it gives when it is waited for, by ops that a tape sees, from memory that nobody else knows.
bool is_finished_by_waiting(std::string_view name);
// Whether it writes its first argument, though its schema does not say so.
bool writes_first(std::string_view name);

// Calls such an op, and waits until it is done. The GIL may be held or not: others have it meanwhile, for threads of a
// group may need it.
void run_collective(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace torchreel::tape
