// One recording as its callers meet it: when it may run, in which of its graphs, and what the caller gets.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "graph.h"
#include "modes.h"

namespace torchreel::graphs {

using Tensors = std::vector<at::Tensor>;

enum class Held { kBranch, kCopy, kError };

struct RouteOptions {
  Held held = Held::kBranch;  // what is done where the caller still holds what a run would overwrite
  size_t branches = 8;        // graphs of one recording in one thread
  bool exact = true;
  // What is said to one who reads an output after the step that made it, where held is kError.
  std::shared_ptr<const std::string> over;
  std::vector<bool> fixed;  // for each input: whether it is expected to lie in the same place at each call
};

enum class Outcome {
  kDone,
  kMoved,    // a parameter or another tensor of the state is no longer where it was
  kAliased,  // an input shares memory with one that the function writes
  kGuard,    // a number that Python used is another one
  kHeld,     // the caller holds an output that would be overwritten
};

class Route : public std::enable_shared_from_this<Route> {
 public:
  Route(std::shared_ptr<const Recording> recording, RouteOptions options);

  // Runs the forward in the calling thread, on inputs that fit. Gives a tensor for each output. May throw what ops
  // throw. The GIL may be held or not; it is not touched.
  Outcome run(const Tensors& given, Tensors& results);
  // Below autograd. `gradients` as for the recorded backward, all defined. `keeps`: there will be another one.
  void run_backward(Graph& forward, const std::vector<Lease*>& saved, const Tensors& gradients, bool keeps,
                    Tensors& results);

  const Recording& recording() const { return *recording_; }
  const RouteOptions& options() const { return options_; }
  Graph* last_graph() const { return last_; }
  std::shared_ptr<Graph> last_forward() const { return last_forward_; }
  // Leases on what the last forward left for its backward: the caller ends them.
  std::vector<Lease*> lease_saved(Graph& graph);
  std::vector<std::shared_ptr<Graph>> graphs() const;
  std::string text_of_failure() const { return failure_; }
  uint32_t failed_op() const { return failed_op_; }
  // For people: one run on these inputs, with the nanoseconds of each kernel.
  std::vector<double> timed_run(const Tensors& given);

  uint64_t hits = 0;
  std::string name;  // of the function

 private:
  struct External {
    c10::TensorImpl* tensor;
    const c10::StorageImpl* storage;
    const void* data;
    int64_t numel;
    bool requires_grad;
  };
  struct Branches {
    std::shared_ptr<Pool> pool;
    std::vector<std::shared_ptr<Graph>> forward;
    std::vector<const void*> last;   // where the inputs of the last call lay
    std::shared_ptr<Graph> copying;  // on a pool of its own, whose outputs are copied
  };
  struct BackwardBranch {
    const Graph* forward;
    bool keeps;
    std::shared_ptr<Graph> graph;
  };

  bool is_in_place(const Tensors& given) const;
  bool shares_memory(const Tensors& given) const;
  void release_gradients(const Graph* graph);
  Branches& branches();
  std::vector<char*> to_bind(Branches& branches, const Tensors& given) const;
  std::shared_ptr<Graph> choose(Branches& branches, const Tensors& given, bool& copies);
  void copy_in(Graph& graph, const Tensors& given) const;
  void keep_for_guard();
  void undo();
  void hand_out(Graph& graph, const Tensors& given, bool copies, Tensors& results);
  c10::Storage storage_for(Graph& graph, uint32_t storage, bool copies, std::vector<c10::Storage>& known);
  at::Tensor output(Graph& graph, uint32_t slot, const Tensors& given, bool copies, std::vector<c10::Storage>& known);
  void visit(Graph& graph);
  void finish(Graph& graph, const Tensors& given, bool copies, std::vector<c10::Storage>& known);

  std::shared_ptr<const Recording> recording_;
  RouteOptions options_;
  std::vector<External> externals_;
  std::vector<const c10::StorageImpl*> written_;  // storages of others that the function writes
  std::vector<Branches> branches_;                // by thread
  std::vector<BackwardBranch> backward_;
  std::vector<at::Tensor> kept_;  // bytes of what is written before the last guard
  at::Tensor drawn_;              // state of the generator
  Graph* last_ = nullptr;
  std::shared_ptr<Graph> last_forward_;
  std::string failure_;
  uint32_t failed_op_ = 0;
};

}  // namespace torchreel::graphs
