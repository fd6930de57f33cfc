// An op of a graph, bound to the memory that it reads and writes. All preparation is done once, when the graph is made.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tape/steps/ops.h"

namespace torchreel::graphs {

// Memory of the graph that is idle while an op runs. A kernel that writes there must not run beside another one.
struct Idle {
  char* data = nullptr;
  size_t bytes = 0;
};

// A call with all that is known of it when a graph is made. Its tensors are dense CPU tensors at their final addresses,
// without autograd's dispatch keys; only the bytes behind them change from run to run.
struct KernelCall {
  const tape::OpInfo* op = nullptr;
  torch::jit::Stack arguments;  // all of the schema's, in its order
  std::vector<bool> fixed;      // for each argument: a tensor whose values never change
  // The memory for the results, lists flattened; undefined for a result that is no tensor. Results of in-place ops are
  // their arguments. Results never overlap read-only arguments, except inputs of `cat` that already lie in its output.
  std::vector<at::Tensor> results;
  bool grad = false;  // whether autograd was on
  bool exact = true;  // the bits must be torch's; else within tolerances
  Idle idle;          // empty if the graph has none
};

class Kernel {
 public:
  virtual ~Kernel() = default;
  // Does what the op does, on the same memory each time. Runs below autograd, without the GIL; may throw.
  virtual void run() = 0;
  // Its layer, for people: "stub", "structured", "blas", "out", "boxed" ...
  virtual const char* layer() const = 0;
};

// Null if it does not take this call. Must not run the op, and must not write to results.
using Prepare = std::unique_ptr<Kernel> (*)(const KernelCall& call);
using Preparers = std::unordered_map<std::string_view, Prepare>;  // by name with overload: "aten::add.Tensor"

const Preparers&
structured_kernels();  // generated: the kernels of structured ops, their checks and iterators made once
const Preparers& handwritten_kernels();  // written by hand: BLAS, norms, attention, copies ...

// The fastest kernel for this call, never null. Throws if the op cannot run on planned memory at all.
std::unique_ptr<Kernel> prepare(const KernelCall& call);

}  // namespace torchreel::graphs
