// The parts that a backward adds up to the gradient of one tensor.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "signature.h"

namespace torchreel::graphs {

// For each of the leaves that the backward of `outputs` reaches on more than one way:
// (place of the leaf, [(node, place among what the node gives)]), in the order in which autograd runs the nodes.
pybind11::list gradient_parts(const Tensors& outputs, const Tensors& leaves);

// What a single node could not stand for, or an empty text: an output that another one was computed from (its hooks see
// what flows through it), or two outputs whose backwards can run one after the other, as they share nothing that the
// first one frees. `keeps` says whether a node keeps tensors.
std::string separate_outputs(const Tensors& outputs, const pybind11::function& keeps);

}  // namespace torchreel::graphs
