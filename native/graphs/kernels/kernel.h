// An op of a graph, bound to the memory that it reads and writes: what is left of a call when all else was done once.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tape/ops.h"

namespace torchreel::graphs {

// Memory that is nobody's while an op runs. A kernel that writes there must not run beside another one.
struct Idle {
  char* data = nullptr;
  size_t bytes = 0;
};

// A call with all that is known of it when a graph is made. Its tensors are dense CPU tensors at their final addresses,
// without autograd's dispatch keys; only the bytes behind them change from run to run.
struct KernelCall {
  const tape::OpInfo* op = nullptr;
  torch::jit::Stack arguments;      // all of the schema's, in its order
  std::vector<bool> fixed;          // for each argument: a tensor whose values never change
  std::vector<at::Tensor> results;  // where results belong, lists flattened; undefined for what is no tensor. Those of
                                    // an op that works in place are its arguments. None overlaps what is only read,
                                    // but for pieces that were made at their place in what they are joined to.
  bool grad = false;                // whether autograd was on
  bool exact = true;                // bitwise what torch does; else within tolerances
  Idle idle;                        // of the graph's own, if there is any
};

class Kernel {
 public:
  virtual ~Kernel() = default;
  // Does what the op does, on the same memory each time. Runs below autograd, without the GIL; may throw.
  virtual void run() = 0;
  // Which layer it is of, for people: "stub", "structured", "blas", "out", "boxed" ...
  virtual const char* layer() const = 0;
};

// Gives nothing where it does not know how to do this call. Must not run the op, and must not write to results.
using Prepare = std::unique_ptr<Kernel> (*)(const KernelCall& call);
using Preparers = std::unordered_map<std::string_view, Prepare>;  // by name with overload: "aten::add.Tensor"

const Preparers&
structured_kernels();  // generated: the kernels of structured ops, their checks and iterators made once
const Preparers& handwritten_kernels();  // written by hand: BLAS, norms, attention, copies ...

// The best that there is for this call; never nothing, but throws where the op cannot be run on fixed memory at all.
std::unique_ptr<Kernel> prepare(const KernelCall& call);

}  // namespace torchreel::graphs
