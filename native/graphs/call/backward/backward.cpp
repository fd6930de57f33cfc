#include "graphs/call/backward/backward.h"

#include <ATen/EmptyTensor.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "tape/capture/slots.h"
#include "torch/below_autograd.h"

namespace torchreel::graphs {

using tape::kNone;
using torch::autograd::Edge;
using torch::autograd::variable_list;

namespace {

// The gradients of these tensors, as ranges of addresses, of those that somebody else refers to as well.
class Gradients {
 public:
  void add(const c10::TensorImpl* owner) {
    const auto& gradient = owner->grad();
    if (!gradient.defined() || !gradient.has_storage() || gradient.numel() == 0) return;
    if (gradient.use_count() < 2 && gradient.storage().use_count() < 2) return;
    int64_t last = 0;
    for (int64_t i = 0; i < gradient.dim(); i++) last += (gradient.size(i) - 1) * gradient.stride(i);
    const auto* begin = static_cast<const char*>(gradient.const_data_ptr());
    ranges_.emplace_back(begin, begin + (last + 1) * static_cast<int64_t>(gradient.element_size()));
  }
  bool overlap() {
    std::sort(ranges_.begin(), ranges_.end());
    for (size_t i = 1; i < ranges_.size(); i++) {
      if (ranges_[i].first < ranges_[i - 1].second) return true;
    }
    return false;
  }

 private:
  std::vector<std::pair<const char*, const char*>> ranges_;
};

// Whether a tensor is none with memory of its own, but one that a mode or a transform made, or a zero without memory.
bool is_wrapped(const c10::TensorImpl& tensor) {
  constexpr c10::DispatchKey kWrappers[] = {c10::DispatchKey::Python,
                                            c10::DispatchKey::PythonTLSSnapshot,
                                            c10::DispatchKey::FuncTorchBatched,
                                            c10::DispatchKey::BatchedNestedTensor,
                                            c10::DispatchKey::FuncTorchGradWrapper,
                                            c10::DispatchKey::Functionalize,
                                            c10::DispatchKey::ZeroTensor,
                                            c10::DispatchKey::Batched,
                                            c10::DispatchKey::Fake};
  auto keys = tensor.key_set();
  return !tensor.has_storage() ||
         std::any_of(std::begin(kWrappers), std::end(kWrappers), [&](c10::DispatchKey key) { return keys.has(key); });
}

// What several nodes of one call have in common, until the last of them lets go of it.
struct Shared {
  std::vector<Lease*> saved;
  Tensors leaves;  // of which there are derivatives

  Shared(std::vector<Lease*> leases, Tensors of) : saved(std::move(leases)), leaves(std::move(of)) {}
  Shared(const Shared&) = delete;
  ~Shared() {
    for (Lease* lease : saved) Pool::end(lease);
  }
};

class GraphBackward : public torch::autograd::Node {
 public:
  GraphBackward(std::shared_ptr<Replay> replay, std::shared_ptr<Graph> graph,
                std::shared_ptr<const Differentiation> how, std::shared_ptr<Shared> shared, std::vector<Lease*>& saved,
                const Tensors& given, const Tensors& owners, const Tensors& outputs, PyObject* call)
      : replay_(std::move(replay)), graph_(std::move(graph)), how_(std::move(how)), shared_(std::move(shared)) {
    if (shared_ == nullptr) saved_ = std::exchange(saved, {});
    writes_ = replay_->writes_of_others();
    for (const auto& tensor : given) remember(tensor, input_versions_);
    for (uint32_t slot : how_->reads) versions_.push_back(version_of(slot));
    for (uint32_t index : how_->kept_outputs) remember(outputs[index], output_versions_);
    for (uint32_t index : how_->kept_inputs) {
      remember(given[index], kept_versions_);
      kept_.push_back(given[index]);
    }
    for (const auto& owner : owners) {
      auto* impl = owner.unsafeGetTensorImpl();
      if (owner.is_leaf() && (leaves_.empty() || leaves_.back() != impl)) leaves_.push_back(impl);
    }
    Py_INCREF(call);
    call_ = call;
  }

  ~GraphBackward() override {
    release();
    if (!Py_IsInitialized()) return;
    pybind11::gil_scoped_acquire gil;
    how_.reset();
  }

  std::string name() const override { return "GraphBackward<" + replay_->name + ">"; }

  void release_variables() override {
    if (how_->frees) {
      release();
    } else {  // as in eager, it can run again
      std::lock_guard<std::mutex> lock(mutex_);
      shared_.reset();
    }
  }

 protected:
  variable_list apply(variable_list&& gradients) override {
    std::lock_guard<std::mutex> lock(mutex_);
    TORCH_CHECK(!released_,
                "Trying to backward through the graph a second time (or directly access saved tensors after they have "
                "already been freed). Specify retain_graph=True if you need to backward through the graph a second "
                "time or if you need to access saved tensors after calling backward.");
    for (size_t i = 0; i < how_->reads.size(); i++) {
      TORCH_CHECK(version_of(how_->reads[i]) == versions_[i],
                  "one of the variables needed for gradient computation has been modified by an inplace operation: a "
                  "parameter of ",
                  replay_->name, " was written between its forward and its backward.");
    }
    TORCH_CHECK(!were_written(output_versions_),
                "one of the variables needed for gradient computation has been modified by an inplace operation: an "
                "output of ",
                replay_->name, " was written before its backward.");
    TORCH_CHECK(!were_written(kept_versions_),
                "one of the variables needed for gradient computation has been modified by an inplace operation: an "
                "input of ",
                replay_->name, " was written between its forward and its backward.");
    Gradients of_leaves;
    if (shared_ != nullptr) {
      for (const auto& leaf : shared_->leaves) of_leaves.add(leaf.unsafeGetTensorImpl());
    } else {
      for (const auto* leaf : leaves_) of_leaves.add(leaf);
    }
    TORCH_CHECK(!of_leaves.overlap(), "Two of the tensors that ", replay_->name,
                " uses have had one gradient tensor since its forward, and the order in which a replay adds to it is "
                "not eager's. Give them the same gradient before the forward, or each its own.");
    bool other_modes = !Modes::now().differentiate_as(how_->modes);
    if (c10::GradMode::is_enabled() || other_modes || !is_recorded(gradients)) return again(gradients, other_modes);
    bool keeps = torch::autograd::get_current_graph_task_keep_graph() || !is_last();
    Tensors results;
    try {
      BelowAutograd below_autograd;
      replay_->copy_again(*graph_, how_->kept_inputs, kept_);
      const auto& saved = shared_ == nullptr ? saved_ : shared_->saved;
      replay_->run_backward(*graph_, how_->segment, saved, gradients, keeps, results);
    } catch (...) {
      released_ = !keeps;  // what was left for it may be overwritten
      throw;
    }
    return results;
  }

 private:
  void release() {
    std::lock_guard<std::mutex> lock(mutex_);
    for (Lease* lease : saved_) Pool::end(lease);
    saved_.clear();
    shared_.reset();
    kept_.clear();
    released_ = true;
    if (call_ != nullptr && Py_IsInitialized()) {
      pybind11::gil_scoped_acquire gil;
      Py_CLEAR(call_);
    }
  }

  // Whether no other segment can read any more what the forward left.
  bool is_last() const { return shared_ == nullptr ? how_->frees : shared_.use_count() == 1; }

  uint32_t version_of(uint32_t slot) const {
    const auto& tensor = replay_->program().tensor(slot);
    return tensor.is_inference() ? 0 : tensor._version();
  }

  bool is_recorded(const variable_list& gradients) const {
    const auto& wanted = replay_->program().recorded().segments[how_->segment].gradients;
    for (size_t i = 0; i < wanted.size(); i++) {
      if (wanted[i] == kNone || !gradients[i].defined()) return false;
      const auto& slot = replay_->program().slot(wanted[i]);
      auto* impl = gradients[i].unsafeGetTensorImpl();
      if (is_wrapped(*impl) || !gradients[i].is_cpu() || gradients[i].layout() != c10::kStrided ||
          gradients[i].scalar_type() != slot.dtype || gradients[i].sizes() != c10::IntArrayRef(slot.sizes) ||
          gradients[i].strides() != c10::IntArrayRef(slot.strides) || gradients[i].is_conj() || gradients[i].is_neg()) {
        return false;
      }
    }
    return true;
  }

  using Versions = std::vector<std::pair<c10::VariableVersion, uint32_t>>;

  static void remember(const at::Tensor& tensor, Versions& versions) {
    if (tensor.is_inference()) return;
    const auto& counter = tensor.unsafeGetTensorImpl()->version_counter();
    versions.emplace_back(counter, counter.current_version());
  }

  static bool were_written(const Versions& versions) {
    return std::any_of(versions.begin(), versions.end(),
                       [](const auto& one) { return one.first.current_version() != one.second; });
  }

  variable_list again(const variable_list& gradients, bool other_modes) {
    TORCH_CHECK(
        !were_written(input_versions_) && replay_->writes_of_others() == writes_, "An input or a parameter of ",
        replay_->name,
        " was modified by an inplace operation between its forward and this backward, which is not the one that "
        "was recorded (other outputs have gradients, they lie differently, or create_graph=True), so that the "
        "function has to run again. Do the backward first, or give the function a clone().");
    pybind11::gil_scoped_acquire gil;
    PyObject* given = PyList_New(static_cast<Py_ssize_t>(gradients.size()));
    for (size_t i = 0; i < gradients.size(); i++) {
      PyList_SET_ITEM(given, static_cast<Py_ssize_t>(i), THPVariable_Wrap(gradients[i]));
    }
    PyObject* graph = c10::GradMode::is_enabled() ? Py_True : Py_False;
    PyObject* modes = other_modes ? Py_True : Py_False;
    PyObject* segment = PyLong_FromSize_t(how_->segment);
    PyObject* cuts = stand_ins();
    PyObject* found = PyObject_CallFunctionObjArgs(how_->again, call_, given, graph, modes, segment, cuts, nullptr);
    Py_DECREF(given);
    Py_DECREF(segment);
    Py_DECREF(cuts);
    if (found == nullptr) {
      python_error error;
      error.persist();
      throw std::move(error);
    }
    variable_list all;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(found); i++) {
      PyObject* each = PyList_GET_ITEM(found, i);
      all.push_back(each == Py_None ? at::Tensor() : THPVariable_Unpack(each));
    }
    Py_DECREF(found);
    return all;
  }

  // Tensors that lead, for autograd, to where the derivatives of the cuts go.
  PyObject* stand_ins() const {
    size_t owners = how_->owners.size();
    PyObject* all = PyList_New(static_cast<Py_ssize_t>(how_->cuts.size()));
    for (size_t i = 0; i < how_->cuts.size(); i++) {
      at::Tensor tensor = at::detail::empty_cpu({0}, at::kFloat);
      torch::autograd::impl::set_gradient_edge(tensor, next_edge(owners + i));
      PyList_SET_ITEM(all, static_cast<Py_ssize_t>(i), THPVariable_Wrap(tensor));
    }
    return all;
  }

  std::shared_ptr<Replay> replay_;
  std::shared_ptr<Graph> graph_;
  std::shared_ptr<const Differentiation> how_;
  std::vector<Lease*> saved_;  // of the only segment; else they are shared
  std::shared_ptr<Shared> shared_;
  Tensors kept_;  // inputs that the backward reads, as eager keeps them: whoever writes to their memory is seen
  std::vector<const c10::TensorImpl*> leaves_;  // of which there are derivatives; the edges keep them alive
  std::vector<uint32_t> versions_;
  Versions input_versions_, output_versions_, kept_versions_;
  uint64_t writes_ = 0;  // of others, to what the function reads
  PyObject* call_ = nullptr;
  bool released_ = false;
};

}  // namespace

Tensors owners_of(const Replay& replay, const Differentiation& how, const Tensors& given) {
  Tensors owners;
  const auto& inputs = replay.program().recorded().inputs;
  for (uint32_t slot : how.owners) {
    at::Tensor owner = replay.program().tensor(slot);
    for (size_t i = 0; i < inputs.size(); i++) {
      if (inputs[i] == slot) owner = given[i];
    }
    owners.push_back(std::move(owner));
  }
  return owners;
}

namespace {

// Of several segments, each once.
Tensors leaves_of(const Owners& owners) {
  Tensors all;
  std::unordered_set<const c10::TensorImpl*> met;
  for (const auto& of_segment : owners) {
    for (const auto& owner : of_segment) {
      if (owner.is_leaf() && met.insert(owner.unsafeGetTensorImpl()).second) all.push_back(owner);
    }
  }
  return all;
}

// Stands for one of several outputs of a segment: its hooks are called when a gradient comes to it, and only then.
class GraphOutput : public torch::autograd::Node {
 public:
  std::string name() const override { return "GraphOutput"; }

 protected:
  variable_list apply(variable_list&& gradients) override { return std::move(gradients); }
};

void set_histories(const c10::intrusive_ptr<GraphBackward>& node, const Replay& replay,
                   const std::vector<uint32_t>& outputs, Tensors& results) {
  if (outputs.size() == 1) return torch::autograd::set_history(results[outputs[0]], node);
  std::vector<std::pair<uint32_t, uint32_t>> edges;  // index and number, in the order in which the outputs were made
  for (uint32_t index : outputs) edges.emplace_back(index, node->add_input_metadata(results[index]));
  const auto& slots = replay.program().recorded().outputs;
  std::stable_sort(edges.begin(), edges.end(),
                   [&](const auto& a, const auto& b) { return slots[a.first] < slots[b.first]; });
  for (const auto& [index, number] : edges) {
    auto output = c10::make_intrusive<GraphOutput>();
    output->set_next_edges({Edge(node, number)});
    torch::autograd::set_history(results[index], output);
  }
}

}  // namespace

bool share_gradients(const Owners& owners) {
  Gradients all;
  if (owners.size() > 1) {
    for (const auto& leaf : leaves_of(owners)) all.add(leaf.unsafeGetTensorImpl());
    return all.overlap();
  }
  const c10::TensorImpl* before = nullptr;
  for (const auto& owner : owners[0]) {
    const auto* impl = owner.unsafeGetTensorImpl();
    if (impl != before) all.add(impl);  // parts of one gradient come one after the other
    before = impl;
  }
  return all.overlap();
}

void connect(const std::shared_ptr<Replay>& replay, const std::shared_ptr<Graph>& graph, const Differentiations& hows,
             std::vector<Lease*>& saved, const Tensors& given, const Owners& owners, Tensors& results, PyObject* call) {
  std::shared_ptr<Shared> shared;
  if (hows.size() > 1) shared = std::make_shared<Shared>(std::exchange(saved, {}), leaves_of(owners));
  // Autograd runs the newest node first; and what a cut leads to is there before the segment that is cut.
  for (size_t i = hows.size(); i-- > 0;) {
    const auto& how = hows[i];
    auto node = c10::make_intrusive<GraphBackward>(replay, graph, how, shared, saved, given, owners[i], results, call);
    torch::autograd::edge_list edges;
    for (const auto& owner : owners[i]) edges.push_back(torch::autograd::impl::gradient_edge(owner));
    for (uint32_t index : how->cuts) edges.push_back(torch::autograd::impl::gradient_edge(results[index]));
    node->set_next_edges(std::move(edges));
    set_histories(node, *replay, how->outputs, results);
  }
}

}  // namespace torchreel::graphs
