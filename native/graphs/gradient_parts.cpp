#include "gradient_parts.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/python_cpp_function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace py = pybind11;

namespace torchreel::graphs {

using torch::autograd::Node;
using NodePointer = decltype(torch::autograd::Edge::function);

namespace {

struct Part {
  NodePointer node;
  uint32_t place;
};

// A node's number is higher than those of the nodes that it leads to: autograd runs the highest first.
bool runs_before(const Part& a, const Part& b) {
  uint64_t first = a.node->sequence_nr(), second = b.node->sequence_nr();
  return first != second ? first > second : a.place < b.place;
}

}  // namespace

py::list gradient_parts(const Tensors& outputs, const Tensors& leaves) {
  std::unordered_map<Node*, size_t> places;
  for (size_t i = 0; i < leaves.size(); i++) {
    places.try_emplace(torch::autograd::impl::gradient_edge(leaves[i]).function.get(), i);
  }
  std::vector<std::vector<Part>> parts(leaves.size());
  std::unordered_set<Node*> seen;
  std::vector<NodePointer> todo;
  for (const auto& output : outputs) {
    if (output.defined() && output.grad_fn()) todo.push_back(output.grad_fn());
  }
  while (!todo.empty()) {
    NodePointer node = std::move(todo.back());
    todo.pop_back();
    if (!node || !seen.insert(node.get()).second) continue;
    const auto& edges = node->next_edges();
    for (uint32_t i = 0; i < edges.size(); i++) {
      auto found = places.find(edges[i].function.get());
      if (found != places.end()) {
        parts[found->second].push_back({node, i});
      } else {
        todo.push_back(edges[i].function);
      }
    }
  }
  py::list all;
  for (size_t i = 0; i < leaves.size(); i++) {
    if (parts[i].size() < 2) continue;
    std::sort(parts[i].begin(), parts[i].end(), runs_before);
    py::list of_leaf;
    for (const auto& part : parts[i]) {
      auto node = py::reinterpret_steal<py::object>(torch::autograd::functionToPyObject(part.node));
      of_leaf.append(py::make_tuple(node, part.place));
    }
    all.append(py::make_tuple(i, of_leaf));
  }
  return all;
}

std::string separate_outputs(const Tensors& outputs, const py::function& keeps) {
  std::vector<std::vector<NodePointer>> order(outputs.size());
  std::vector<std::unordered_set<Node*>> reached(outputs.size());
  for (size_t i = 0; i < outputs.size(); i++) {
    std::vector<NodePointer> todo = {outputs[i].grad_fn()};
    while (!todo.empty()) {
      NodePointer node = std::move(todo.back());
      todo.pop_back();
      if (!node || !reached[i].insert(node.get()).second) continue;
      order[i].push_back(node);
      for (const auto& edge : node->next_edges()) {
        if (!edge.function) continue;
        for (size_t j = 0; j < outputs.size(); j++) {
          if (j != i && edge.function == outputs[j].grad_fn() && edge.input_nr == outputs[j].output_nr()) {
            return "returns a tensor and another one that was computed from it";
          }
        }
        todo.push_back(edge.function);
      }
    }
  }
  for (size_t i = 0; i < outputs.size(); i++) {
    for (size_t j = 0; j < i; j++) {
      bool shared = std::any_of(order[i].begin(), order[i].end(), [&](const NodePointer& node) {
        if (!reached[j].contains(node.get())) return false;
        return keeps(py::reinterpret_steal<py::object>(torch::autograd::functionToPyObject(node))).cast<bool>();
      });
      if (!shared) return "returns tensors whose backwards can run one after the other";
    }
  }
  return "";
}

}  // namespace torchreel::graphs
