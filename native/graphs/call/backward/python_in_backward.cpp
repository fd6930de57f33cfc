#include "graphs/call/backward/python_in_backward.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <string_view>
#include <typeinfo>
#include <unordered_set>

namespace torchreel::graphs {

using torch::autograd::Node;

namespace {

const char* python_of(Node& node) {
  // By its name: torch does not export the class itself.
  constexpr std::string_view kPyNode = "N5torch8autograd6PyNodeE";
  if (typeid(node).name() == kPyNode) return "an autograd.Function, whose backward is Python";
  if (!node.retains_grad_hooks().empty()) return "a tensor whose gradient is retained";
  if (node.tensor_post_acc_grad_hooks() != nullptr) return "a hook that runs after a gradient was accumulated";
  if (!node.pre_hooks().empty() || !node.post_hooks().empty() || !node.tensor_pre_hooks().empty()) return "a hook";
  return nullptr;
}

}  // namespace

std::string python_in_backward(const Tensors& outputs) {
  std::unordered_set<Node*> seen;
  std::vector<Node*> todo;
  for (const auto& output : outputs) {
    if (output.defined() && output.grad_fn()) todo.push_back(output.grad_fn().get());
  }
  while (!todo.empty()) {
    Node* node = todo.back();
    todo.pop_back();
    if (node == nullptr || !seen.insert(node).second) continue;
    if (const char* found = python_of(*node)) return found;
    for (const auto& edge : node->next_edges()) todo.push_back(edge.function.get());
  }
  return "";
}

}  // namespace torchreel::graphs
