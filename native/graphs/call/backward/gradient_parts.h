// Two ways to take a backward apart: the parts that sum up to the gradient of one tensor, and the segments that
// autograd runs one after the other.
#pragma once

#include <pybind11/pybind11.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

#include <vector>

#include "graphs/call/signature.h"

namespace torchreel::graphs {

// The leaves whose gradient has several parts in the backward of `outputs`. For each: (index of the leaf, parts). A
// part is (node that computes it, which of the node's results it is). Parts are in the order in which autograd runs the
// nodes.
pybind11::list gradient_parts(const Tensors& outputs, const Tensors& leaves);

// Splits the backward of `outputs` into segments. Each segment becomes one node of autograd's graph. Segments are in
// the order in which autograd runs them. A segment is
//
//     (indices of its outputs,
//      indices of outputs of other segments that its outputs were computed from,
//      indices of the leaves that it reaches,
//      whether one of its nodes saves tensors)
//
// Where the backward cannot be split, the result is the reason, as a text. `keeps(node)` says whether a node of
// autograd saves tensors.
//
// Segments meet at an output that another output was computed from: hooks of that output see the gradient that passes
// through it. Outputs whose backwards share a node are in one segment. They must share a node that saves tensors: then
// a second backward fails in eager, too.
pybind11::object segments_of(const Tensors& outputs, const Tensors& leaves, const pybind11::function& keeps);

using NodePointer = decltype(torch::autograd::Edge::function);

// The edges of autograd's graph that lead from `outputs` to the tensors `cuts`. They can be redirected to `leaves`, so
// that a backward stops there.
class CutEdges {
 public:
  CutEdges(const Tensors& outputs, const Tensors& cuts, const Tensors& leaves);
  // Redirects the edges. The second call restores them.
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
