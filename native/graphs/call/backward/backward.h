// The nodes of autograd's graph that stand for a whole graph of ours: their backwards are others.
#pragma once

#include <Python.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <vector>

#include "graphs/call/modes.h"
#include "graphs/call/replay/replay.h"

namespace torchreel::graphs {

// What a replay knows of a segment of its backward beside its program.
struct Differentiation {
  size_t segment = 0;
  std::vector<uint32_t> outputs;       // indices of the outputs that it is given gradients of
  std::vector<uint32_t> kept_outputs;  // those whose values a backward reads
  std::vector<uint32_t> kept_inputs;   // and of the inputs
  std::vector<uint32_t> owners;        // slots of the inputs and parameters whose derivatives a backward gives
  std::vector<uint32_t> cuts;          // indices of outputs whose derivatives it gives after those, to their segments
  std::vector<uint32_t> reads;         // slots of others that a backward reads
  bool frees = true;                   // whether it has something to free, without which it cannot run again
  Modes modes;                         // of the recorded call
  // (arguments, gradients, create_graph, whether modes are others, segment, stand-ins for the cuts) -> derivatives:
  // runs the function again, for a backward that is not the recorded one. Held by the GIL.
  PyObject* again = nullptr;

  Differentiation() = default;
  Differentiation(const Differentiation&) = delete;
  ~Differentiation() { Py_XDECREF(again); }
};

using Differentiations = std::vector<std::shared_ptr<const Differentiation>>;
using Owners = c10::SmallVector<Tensors, 1>;  // of each segment

// The tensors whose derivatives a backward gives, in a call with these inputs.
Tensors owners_of(const Replay& replay, const Differentiation& how, const Tensors& given);

// Whether two of these tensors add to the same memory when their gradients are accumulated. The order in which autograd
// does that for derivatives of one node is not eager's.
bool share_gradients(const Owners& owners);

// Makes the outputs of a run known to autograd, by a node for each segment, and takes over the leases on what was
// saved. The GIL is held; `call` is what `again` needs of the call.
void connect(const std::shared_ptr<Replay>& replay, const std::shared_ptr<Graph>& graph, const Differentiations& hows,
             std::vector<Lease*>& saved, const Tensors& given, const Owners& owners, Tensors& results, PyObject* call);

}  // namespace torchreel::graphs
