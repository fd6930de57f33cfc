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
// Whether it writes its first argument, though its schema does not say so.
bool writes_first(std::string_view name);

// Waits for what such an op gave, which is on the stack. The GIL may be held or not: others have it meanwhile.
void wait_for(const torch::jit::Stack& results);

}  // namespace torchreel::tape
