// Undoes a run that stops at a guard: puts back what it wrote to external tensors, and the state of the generator.
//
// Each thread of a Replay has one, in its ThreadBranches. save() is called before each run and does nothing for
// programs without guards; restore() only after a guard failed. Both below autograd, with Pool::running held.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "graphs/plan/static_program.h"

namespace torchreel::graphs {

class Rollback {
 public:
  void save(const StaticProgram& program);
  void restore(const StaticProgram& program) const;

 private:
  Tensors bytes_;         // of each external storage that is written before the last guard
  at::Tensor generator_;  // the state of the default generator
};

}  // namespace torchreel::graphs
