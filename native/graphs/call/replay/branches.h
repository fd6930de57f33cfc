// The graphs of one static program, and the choice of one for a run.
//
// A graph is bound to addresses in the pool of a thread. It cannot run while the caller holds an output that it would
// overwrite, or if an input that it reads in place lies elsewhere: then another graph of the same program takes the
// call. Such alternatives are the branches of a tree; a graph's children are the graphs that ran after it in a step.
//
// A Replay owns one Branches, and asks it at each run for a graph, after the call was admitted and before anything is
// copied. Pool::running of the thread's pool must be held from of() until the run is over.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "graphs/call/replay/inputs.h"
#include "graphs/call/replay/options.h"
#include "graphs/call/replay/rollback.h"
#include "graphs/run/graph.h"

namespace torchreel::graphs {

// What a Replay has in one thread. Guarded by Pool::running of its pool.
struct ThreadBranches {
  struct Backward {
    uint32_t forward;  // id of its graph
    size_t segment;
    bool keeps;
    std::shared_ptr<Graph> graph;
  };

  std::shared_ptr<Pool> pool;
  uint64_t version = 0;                          // of the lowering that the graphs were made with
  std::vector<std::shared_ptr<Graph>> outdated;  // of older versions: leases on their outputs still refer to them
  std::vector<std::shared_ptr<Graph>> forward;   // the one that ran last comes first
  std::shared_ptr<Graph> copying;                // on the scratch pool: its outputs are copied
  std::vector<Backward> backward;
  Inputs::Addresses last;
  Rollback rollback;
};

// A graph for a forward. Without one, `kept` says why: an op keeps what the run would overwrite, or else the caller
// holds it.
struct Choice {
  const std::shared_ptr<Graph>* graph = nullptr;  // alive as long as Pool::running is held
  bool copies = false;                            // whether the caller gets copies of its outputs
  bool kept = false;
};

class Branches {
 public:
  // Options and inputs outlive it.
  Branches(std::shared_ptr<const StaticProgram> program, const ReplayOptions& options, const Inputs& inputs,
           std::shared_ptr<Lowering> lowering);

  // Of the thread that the pool belongs to.
  ThreadBranches& of(const std::shared_ptr<Pool>& pool);
  // Sets aside the graphs that were made before the newest generated kernels were known.
  void renew(ThreadBranches& here) const;
  // Releases gradients that the function clears.
  Choice choose(ThreadBranches& here, const Tensors& given) const;
  std::shared_ptr<Graph> choose_backward(ThreadBranches& here, const Graph& forward, size_t segment, bool keeps) const;
  // Makes the graphs that the first run needs. Throws if an op has no kernel.
  void make_first(ThreadBranches& here, const Tensors& given) const;
  // Notes a run in the tree of graphs of the thread.
  void visit(Graph& graph) const;

  // The op that keeps an argument of a graph of this thread; kNone if a graph of another Replay had it.
  static uint32_t keeper(const ThreadBranches& here);
  // Of all threads.
  std::vector<std::shared_ptr<Graph>> graphs() const;

 private:
  Choice choose_usable(ThreadBranches& here, const Tensors& given, size_t& fitting) const;
  Choice choose_copying(ThreadBranches& here) const;
  size_t most_graphs() const;
  std::shared_ptr<Graph> make_forward(const std::shared_ptr<Pool>& pool, std::vector<char*> bound_inputs) const;

  std::shared_ptr<const StaticProgram> program_;
  const ReplayOptions& options_;
  const Inputs& inputs_;
  std::shared_ptr<Lowering> lowering_;
  uint64_t id_;               // of all Branches that ever were
  mutable std::mutex mutex_;  // guards threads_
  std::vector<std::unique_ptr<ThreadBranches>> threads_;
};

}  // namespace torchreel::graphs
