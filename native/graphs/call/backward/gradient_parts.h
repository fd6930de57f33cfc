// The parts that a backward adds up to the gradient of one tensor, and those that it runs in.
#pragma once

#include <pybind11/pybind11.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

#include <vector>

#include "graphs/call/signature.h"

namespace torchreel::graphs {

// For each of the leaves that the backward of `outputs` reaches on more than one way:
// (index of the leaf, [(node, index among what the node gives)]), in the order in which autograd runs the nodes.
pybind11::list gradient_parts(const Tensors& outputs, const Tensors& leaves);

// The segments that the backward of `outputs` falls into, one for each node that is to stand for it, in the order in
// which autograd runs them: (indices of outputs, indices of outputs of other segments that were used for them, places
// of the leaves that it reaches, whether it keeps tensors). Or a text: why there are none. `keeps` says whether a node
// of autograd keeps tensors.
//
// An output that another one was computed from is where segments meet: its hooks see what flows through it. Outputs
// that share nodes are in one segment, if a backward of the one frees what the other one needs.
pybind11::object segments_of(const Tensors& outputs, const Tensors& leaves, const pybind11::function& keeps);

using NodePointer = decltype(torch::autograd::Edge::function);

// Edges of autograd's graph that lead from `outputs` to the tensors `cuts`, and that can end at `leaves` meanwhile.
class CutEdges {
 public:
  CutEdges(const Tensors& outputs, const Tensors& cuts, const Tensors& leaves);
  // Cuts them, or puts them back.
  void exchange();

 private:
  struct Exchanged {
    NodePointer node;
    uint32_t index;
    torch::autograd::Edge edge;
  };
  std::vector<Exchanged> all_;
};

}  // namespace torchreel::graphs
