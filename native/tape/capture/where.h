// The source location of a call: the Python stack, and the innermost module that is being called.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cpython/interpreter.h"

namespace torchreel::tape {

struct FrameRow {
  std::string file;
  int line;
  std::string function;
};
struct StackRow {
  uint32_t parent;
  uint32_t frame;
};

// The calling thread's stack: an index of stacks(), 0 without Python. Does not require the GIL, but may take it.
uint32_t stack_of_caller();
// The innermost module that the thread is calling, borrowed, or null. Does not require the GIL.
PyObject* module_of_caller();
// The code of nn.Module's call, by which module_of_caller() knows it; kept. Needs the GIL.
void set_module_call(PyCodeObject* code);
// Outermost frames of these files are left out.
void hide_files(std::vector<std::string> files);

std::vector<FrameRow> frames();
std::vector<StackRow> stacks();

}  // namespace torchreel::tape
