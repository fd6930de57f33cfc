// The node of autograd's graph that stands for a whole graph of ours: its backward is another one.
#pragma once

#include <Python.h>
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <vector>

#include "modes.h"
#include "route.h"

namespace torchreel::graphs {

// What a route with a backward knows beside its recording.
struct Differentiation {
  std::vector<uint32_t> outputs;       // places among the outputs that have a gradient
  std::vector<uint32_t> kept_outputs;  // those whose values a backward reads
  std::vector<uint32_t> kept_inputs;   // and of the inputs
  std::vector<uint32_t> owners;        // slots of the inputs and parameters whose derivatives a backward gives
  std::vector<uint32_t> reads;         // slots of others that a backward reads
  Modes modes;                         // of the recorded call
  // (arguments, gradients, create_graph, whether modes are others) -> derivatives: runs the function again, for a
  // backward that is not the recorded one. Held by the GIL.
  PyObject* again = nullptr;

  Differentiation() = default;
  Differentiation(const Differentiation&) = delete;
  ~Differentiation() { Py_XDECREF(again); }
};

// The tensors whose derivatives a backward gives, in a call with these inputs.
Tensors owners_of(const Route& route, const Differentiation& how, const Tensors& given);

// Whether two of these tensors add to the same memory when their gradients are accumulated. The order in which autograd
// does that for derivatives of one node is not eager's.
bool share_gradients(const Tensors& owners);

// Makes the outputs of a run known to autograd. The GIL is held; `call` is what `again` needs of the call.
void connect(const std::shared_ptr<Route>& route, const std::shared_ptr<Graph>& graph,
             const std::shared_ptr<const Differentiation>& how, const Tensors& given, const Tensors& owners,
             Tensors& results, PyObject* call);

}  // namespace torchreel::graphs
