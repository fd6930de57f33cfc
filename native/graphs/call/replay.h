// One static program as its callers meet it: when it may run, in which of its graphs, and what the caller gets.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "graphs/call/modes.h"
#include "graphs/guards/tensor_guards.h"
#include "graphs/run/graph.h"

namespace torchreel::graphs {

enum class Held { kBranch, kCopy, kError };

struct ReplayOptions {
  Held held = Held::kBranch;  // what is done where the caller still holds what a run would overwrite
  size_t branches = 8;        // graphs of one program in one thread
  bool exact = true;
  int cores = 1;  // that independent kernels of one graph may run on
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
  kKept,     // an op keeps a tensor that it was given, which would be overwritten
};

// Of one run.
struct Report {
  bool wants_graph = false;
  std::shared_ptr<Graph> graph;  // if it is wanted
  std::string failure;           // of a guard
  uint32_t op = 0;               // that it stopped at
  std::vector<Lease*> saved;     // on what its backward reads, with the graph; those that nobody took over end here
  ~Report() {
    for (Lease* lease : saved) Pool::end(lease);
  }
};

class Replay : public std::enable_shared_from_this<Replay> {
 public:
  Replay(std::shared_ptr<const StaticProgram> program, ReplayOptions options);

  // Runs the forward in the calling thread, on inputs that fit. Gives a tensor for each output. May throw what ops
  // throw. The GIL may be held or not; it is not touched.
  Outcome run(const Tensors& given, Tensors& results, Report& report);
  // Below autograd. `gradients` as for the recorded backward, all defined. `keeps`: there will be another one.
  // The inputs of a forward that its backward reads, from where they lie now.
  void copy_again(Graph& graph, const std::vector<uint32_t>& inputs, const Tensors& given) const;
  void run_backward(Graph& forward, size_t segment, const std::vector<Lease*>& saved, const Tensors& gradients,
                    bool keeps, Tensors& results);

  // Generated kernels are told to it as they come; they are tried from the next call on.
  Lowering& lowering() const { return *lowering_; }

  // The graphs that the first run needs, now. Throws where an op cannot be bound.
  void make_first(const Tensors& given);

  const StaticProgram& program() const { return *program_; }
  // Counts the writes of others to tensors that it reads and does not write itself.
  uint64_t writes_of_others() const;
  const ReplayOptions& options() const { return options_; }
  std::vector<std::shared_ptr<Graph>> graphs() const;
  // For people: one run on these inputs, with the nanoseconds of each kernel.
  struct Timed {
    uint32_t op;
    const char* layer;
    double nanoseconds;
  };
  std::vector<Timed> timed_run(const Tensors& given);

  std::atomic<uint64_t> hits{0};
  bool grad = true;   // whether autograd is on where it runs
  std::string name;   // of the function
  std::string label;  // of a run, for profilers

 private:
  struct External {
    c10::TensorImpl* tensor;
    const c10::StorageImpl* storage;
    bool requires_grad;
  };
  // What the checks of each call need of the inputs, found once.
  struct Inputs {
    std::vector<uint32_t> external;   // indices of those that are tensors of the function's own
    std::vector<uint32_t> large;      // of those that may be read where they lie
    std::vector<uint32_t> unplanned;  // of those that have no fixed memory
  };
  struct BackwardBranch {
    uint32_t forward;  // id
    size_t segment;
    bool keeps;
    std::shared_ptr<Graph> graph;
  };
  struct Branches {  // of one thread; guarded by Pool::running
    std::shared_ptr<Pool> pool;
    uint64_t version = 0;                          // of the lowering that its graphs are made of
    std::vector<std::shared_ptr<Graph>> outdated;  // which leases of what they gave still know
    std::vector<std::shared_ptr<Graph>> forward;
    std::vector<const void*> last;   // where the large inputs of the last call lay
    std::shared_ptr<Graph> copying;  // on a pool of its own, whose outputs are copied
    std::vector<BackwardBranch> backward;
    std::vector<at::Tensor> kept;  // bytes of what is written before the last guard
    at::Tensor drawn;              // state of the generator
  };

  using Handed = c10::SmallVector<std::pair<uint32_t, c10::Storage>, 4>;  // storages of one run that are given out

  bool is_in_place(const Tensors& given) const;
  bool shares_memory(const Tensors& given) const;
  void release_gradients(const Graph* graph);
  Branches& branches_on(const std::shared_ptr<Pool>& pool);
  void renew(Branches& branches) const;
  std::vector<char*> to_bind(Branches& branches, const Tensors& given) const;
  // Alive as long as Pool::running is held.
  const std::shared_ptr<Graph>* choose(Branches& branches, const Tensors& given, bool& copies, bool& kept);
  static uint32_t keeper(const Branches& branches);
  // `given` must stay until the run is over.
  void copy_in(Graph& graph, const Tensors& given) const;
  void keep_for_guard(Branches& here) const;
  void undo(Branches& here) const;
  c10::Storage storage_for(Graph& graph, uint32_t storage, bool copies, Handed& known);
  at::Tensor output(Graph& graph, uint32_t slot, const Tensors& given, bool copies, Handed& known);
  void visit(Graph& graph);
  // Leases on what the last forward left for its backward: the caller ends them.
  std::vector<Lease*> lease_saved(Graph& graph);
  void count_versions(const Tensors& given) const;
  void finish(Graph& graph, const Tensors& given, bool copies, Handed& known);

  std::shared_ptr<const StaticProgram> program_;
  ReplayOptions options_;
  std::shared_ptr<Lowering> lowering_;
  mutable std::mutex mutex_;  // of branches_
  std::vector<External> externals_;
  TensorGuards tensor_guards_;               // of the externals
  std::vector<c10::TensorImpl*> only_read_;  // of the externals
  Inputs inputs_;
  bool has_more_to_write_;  // than what its kernels write
  uint64_t id_;             // of all replays that ever were
  // By segment, slots that it gives. A derivative of two tensors is one tensor, as in eager: the second is the place of
  // the first with this slot. Autograd copies it where each keeps it.
  std::vector<std::vector<std::pair<uint32_t, uint32_t>>> derivatives_;
  std::vector<const c10::StorageImpl*> written_;  // storages of others that the function writes
  std::vector<std::unique_ptr<Branches>> branches_;
  std::shared_ptr<Graph> timed_;  // on a pool of its own
  uint64_t timed_version_ = 0;
};

}  // namespace torchreel::graphs
