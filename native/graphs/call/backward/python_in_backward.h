// Whether a backward would run Python: hooks, and functions whose backward is written in Python.
#pragma once

#include <string>

#include "graphs/call/signature.h"

namespace torchreel::graphs {

// What of Python the backward of these tensors runs, in words; nothing where it runs none.
std::string python_in_backward(const Tensors& outputs);

}  // namespace torchreel::graphs
