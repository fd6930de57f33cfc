#include "graphs/call/backward/gradient_parts.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/python_cpp_function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace py = pybind11;

namespace torchreel::graphs {

using torch::autograd::Node;

namespace {

struct GradientPart {
  NodePointer node;
  uint32_t index;
};

// Autograd runs the node with the highest sequence number first. A node has a higher number than the nodes it leads to.
bool runs_before(const GradientPart& a, const GradientPart& b) {
  uint64_t first = a.node->sequence_nr(), second = b.node->sequence_nr();
  return first != second ? first > second : a.index < b.index;
}

}  // namespace

py::list gradient_parts(const Tensors& outputs, const Tensors& leaves) {
  std::unordered_map<Node*, size_t> leaf_indices;
  for (size_t i = 0; i < leaves.size(); i++) {
    leaf_indices.try_emplace(torch::autograd::impl::gradient_edge(leaves[i]).function.get(), i);
  }
  std::vector<std::vector<GradientPart>> parts(leaves.size());
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
      auto found = leaf_indices.find(edges[i].function.get());
      if (found != leaf_indices.end()) {
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
      of_leaf.append(py::make_tuple(node, part.index));
    }
    all.append(py::make_tuple(i, of_leaf));
  }
  return all;
}

namespace {

using EdgeTarget = std::pair<Node*, uint32_t>;

// The edge at which each tensor's gradient arrives, with the index of the tensor.
std::map<EdgeTarget, size_t> arrivals_at(const Tensors& tensors) {
  std::map<EdgeTarget, size_t> all;
  for (size_t i = 0; i < tensors.size(); i++) {
    auto edge = torch::autograd::impl::gradient_edge(tensors[i]);
    all.try_emplace({edge.function.get(), edge.input_nr}, i);
  }
  return all;
}

// The nodes of a tensor's backward, up to the leaves and up to the gradients of other tensors (the cuts).
struct Walk {
  std::vector<NodePointer> nodes;
  std::unordered_set<Node*> met;
  std::map<size_t, std::vector<GradientPart>> cuts;   // by the tensor whose gradient arrives
  std::map<Node*, std::vector<GradientPart>> leaves;  // by the node that accumulates a leaf's gradient

  void go(const NodePointer& from, const std::map<EdgeTarget, size_t>& arrivals) {
    std::vector<NodePointer> todo = {from};
    while (!todo.empty()) {
      NodePointer node = std::move(todo.back());
      todo.pop_back();
      if (!met.insert(node.get()).second) continue;
      nodes.push_back(node);
      const auto& edges = node->next_edges();
      for (uint32_t i = 0; i < edges.size(); i++) {
        if (!edges[i].function) continue;
        auto cut = arrivals.find({edges[i].function.get(), edges[i].input_nr});
        if (cut != arrivals.end()) {
          cuts[cut->second].push_back({node, i});
        } else if (dynamic_cast<torch::autograd::AccumulateGrad*>(edges[i].function.get()) != nullptr) {
          leaves[edges[i].function.get()].push_back({node, i});
        } else {
          todo.push_back(edges[i].function);
        }
      }
    }
  }
};

py::object object_of(const NodePointer& node) {
  return py::reinterpret_steal<py::object>(torch::autograd::functionToPyObject(node));
}

bool any_keeps(const std::vector<NodePointer>& nodes, const py::function& keeps, const std::unordered_set<Node*>* of) {
  return std::any_of(nodes.begin(), nodes.end(), [&](const NodePointer& node) {
    return (of == nullptr || of->contains(node.get())) && keeps(object_of(node)).cast<bool>();
  });
}

// The outputs of one segment.
struct Group {
  std::vector<size_t> outputs;
  Walk walk;
  uint64_t newest = 0;  // the highest sequence number of its outputs' nodes
};

struct Inseparable : std::runtime_error {
  using std::runtime_error::runtime_error;
};

constexpr const char* kThrough = "returns a tensor and another one that was computed from it and from what it came of";
constexpr const char* kTurns = "returns tensors whose backwards run in turns";

class Grouping {
 public:
  Grouping(const Tensors& outputs, const py::function& keeps) : outputs_(outputs), keeps_(keeps) {
    arrivals_ = arrivals_at(outputs);
    if (arrivals_.size() < outputs.size()) throw Inseparable("returns tensors that have one gradient");
    for (const auto& output : outputs) walks_.emplace_back().go(output.grad_fn(), arrivals_);
  }

  // The groups, in the order in which autograd runs them.
  std::vector<Group> groups() {
    std::vector<Group> found;
    std::vector<bool> taken(outputs_.size(), false);
    for (size_t i = 0; i < outputs_.size(); i++) {
      if (!taken[i]) found.push_back(group_of(i, taken));
    }
    auto ordered = in_order(std::move(found));
    check_parts(ordered);
    return ordered;
  }

 private:
  bool share(size_t i, size_t j) const {
    return std::any_of(walks_[i].nodes.begin(), walks_[i].nodes.end(),
                       [&](const NodePointer& node) { return walks_[j].met.contains(node.get()); });
  }

  // The group of one output: all outputs that are connected to it by shared nodes. Two outputs of a group must share a
  // node that saves tensors. If not, eager could run their backwards one after the other, and a segment could not.
  Group group_of(size_t first, std::vector<bool>& taken) {
    Group group;
    group.outputs = {first};
    taken[first] = true;
    for (size_t i = 0; i < group.outputs.size(); i++) {
      for (size_t j = 0; j < outputs_.size(); j++) {
        if (taken[j] || !share(group.outputs[i], j)) continue;
        taken[j] = true;
        group.outputs.push_back(j);
      }
    }
    std::sort(group.outputs.begin(), group.outputs.end());
    for (size_t i : group.outputs) {
      for (size_t j : group.outputs) {
        if (walks_[i].cuts.contains(j)) throw Inseparable(kThrough);
        if (i < j && !any_keeps(walks_[i].nodes, keeps_, &walks_[j].met)) {
          throw Inseparable("returns tensors whose backwards can run one after the other");
        }
      }
      group.walk.go(outputs_[i].grad_fn(), arrivals_);
      group.newest = std::max(group.newest, outputs_[i].grad_fn()->sequence_nr());
    }
    return group;
  }

  // Sorts the groups: a group comes after all groups that lead to it, and among those that are ready the newest is
  // next.
  static std::vector<Group> in_order(std::vector<Group> all) {
    std::vector<Group> ordered;
    auto leads_to = [](const Group& one, const Group& other) {
      return std::any_of(other.outputs.begin(), other.outputs.end(),
                         [&](size_t output) { return one.walk.cuts.contains(output); });
    };
    while (!all.empty()) {
      size_t best = all.size();
      for (size_t i = 0; i < all.size(); i++) {
        bool last = std::none_of(all.begin(), all.end(), [&](const Group& one) { return leads_to(one, all[i]); });
        if (last && (best == all.size() || all[i].newest > all[best].newest)) best = i;
      }
      if (best == all.size()) throw Inseparable(kThrough);
      ordered.push_back(std::move(all[best]));
      all.erase(all.begin() + static_cast<std::ptrdiff_t>(best));
    }
    return ordered;
  }

  // Throws if the parts of one gradient would arrive in another order when the groups run one after the other.
  static void check_parts(const std::vector<Group>& groups) {
    std::map<size_t, std::vector<GradientPart>> cuts;
    std::map<Node*, std::vector<GradientPart>> leaves;
    auto add = [](auto& all, const auto& of_group) {
      for (auto [target, parts] : of_group) {
        std::sort(parts.begin(), parts.end(), runs_before);
        all[target].insert(all[target].end(), parts.begin(), parts.end());
      }
    };
    for (const auto& group : groups) {
      add(cuts, group.walk.cuts);
      add(leaves, group.walk.leaves);
    }
    auto check = [](const auto& all) {
      for (const auto& [target, parts] : all) {
        if (!std::is_sorted(parts.begin(), parts.end(), runs_before)) throw Inseparable(kTurns);
      }
    };
    check(cuts);
    check(leaves);
  }

  const Tensors& outputs_;
  const py::function& keeps_;
  std::map<EdgeTarget, size_t> arrivals_;
  std::vector<Walk> walks_;
};

}  // namespace

py::object segments_of(const Tensors& outputs, const Tensors& leaves, const py::function& keeps) {
  std::vector<Group> groups;
  try {
    groups = Grouping(outputs, keeps).groups();
  } catch (const Inseparable& why) {
    return py::str(why.what());
  }
  py::list all;
  for (const auto& group : groups) {
    py::list cuts, reached;
    for (const auto& [output, parts] : group.walk.cuts) cuts.append(output);
    for (size_t i = 0; i < leaves.size(); i++) {
      auto* node = torch::autograd::impl::gradient_edge(leaves[i]).function.get();
      if (group.walk.leaves.contains(node)) reached.append(i);
    }
    all.append(py::make_tuple(group.outputs, cuts, reached, any_keeps(group.walk.nodes, keeps, nullptr)));
  }
  return all;
}

CutEdges::CutEdges(const Tensors& outputs, const Tensors& cuts, const Tensors& leaves) {
  Walk walk;
  auto arrivals = arrivals_at(cuts);
  for (const auto& output : outputs) {
    if (output.defined() && output.grad_fn()) walk.go(output.grad_fn(), arrivals);
  }
  for (const auto& [cut, parts] : walk.cuts) {
    auto leaf = torch::autograd::impl::gradient_edge(leaves[cut]);
    for (const auto& part : parts) all_.push_back({part.node, part.index, leaf});
  }
}

void CutEdges::exchange() {
  for (auto& one : all_) std::swap(one.node->next_edges()[one.index], one.edge);
}

}  // namespace torchreel::graphs
