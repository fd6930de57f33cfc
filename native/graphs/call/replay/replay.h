// Runs one static program for its callers: from the tensors of a call to the tensors that it returns.
//
// A cache entry owns a Replay, and so do the autograd nodes of its runs. The call cache calls run() for each call whose
// guards hold; a node calls run_backward(). A run is a list of phases, each with a file of its own:
//
//     Admission      may this call be replayed at all?
//     Branches       which graph runs it?
//     Rollback       saves what a failing guard must undo
//     Inputs         copies the inputs into the graph
//     Graph          runs the kernels
//     side effects   inputs written, versions counted, gradients set
//     Outputs        tensors for the caller, on leased or copied memory
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "graphs/call/replay/admission.h"
#include "graphs/call/replay/branches.h"
#include "graphs/call/replay/inputs.h"
#include "graphs/call/replay/options.h"
#include "graphs/call/replay/outcome.h"
#include "graphs/run/graph.h"

namespace torchreel::graphs {

class Replay : public std::enable_shared_from_this<Replay> {
 public:
  // `name` is that of the function.
  Replay(std::shared_ptr<const StaticProgram> program, ReplayOptions options, std::string name);

  // Runs the forward in the calling thread, on inputs that fit, and writes a tensor for each output to `results`.
  // Throws what ops throw. Does not touch the GIL, which may be held or not.
  Outcome run(const Tensors& given, Tensors& results, Report& report);
  // Copies the inputs that the backward of `graph` reads into it once more, from where they lie now.
  void copy_again(Graph& graph, const std::vector<uint32_t>& inputs, const Tensors& given) const {
    Inputs::copy_again(graph, inputs, given);
  }
  // Runs a segment of the backward, below autograd. `gradients` are as recorded, all defined. `saved` are the leases of
  // its forward's Report. With `keeps`, another backward will read the same memory.
  void run_backward(Graph& forward, size_t segment, const std::vector<Lease*>& saved, const Tensors& gradients,
                    bool keeps, Tensors& results);

  // Generated kernels are added here as they are compiled. Graphs try them from the next call on.
  Lowering& lowering() const { return *lowering_; }

  // Makes the graphs that the first run needs. Throws if an op has no kernel.
  void make_first(const Tensors& given);

  const StaticProgram& program() const { return *program_; }
  // Counts the writes to external tensors that the function reads and does not write itself.
  uint64_t writes_of_others() const { return admission_.writes_of_others(); }
  const ReplayOptions& options() const { return options_; }
  std::vector<std::shared_ptr<Graph>> graphs() const { return branches_.graphs(); }
  // For people: one run on these inputs, with the nanoseconds of each kernel.
  struct Timed {
    uint32_t op;
    const char* layer;
    double nanoseconds;
  };
  std::vector<Timed> timed_run(const Tensors& given);

  const std::string name;
  std::atomic<uint64_t> hits{0};
  bool grad = true;  // whether autograd is on where it runs

 private:
  // A slot that a segment gives, and the index of the first derivative with this slot.
  struct Derivative {
    uint32_t slot, first;
  };

  bool run_guarded(Graph& graph, ThreadBranches& here, const Tensors& given, Report& report) const;

  std::string label_;  // of a run, for profilers
  std::shared_ptr<const StaticProgram> program_;
  ReplayOptions options_;
  std::shared_ptr<Lowering> lowering_;
  Admission admission_;
  Inputs inputs_;
  Branches branches_;
  bool has_side_effects_;
  // By segment. The derivative of two tensors is one tensor, as in eager. Autograd copies it if both keep it.
  std::vector<std::vector<Derivative>> derivatives_;
  std::shared_ptr<Graph> timed_;  // on a pool of its own
  uint64_t timed_version_ = 0;
};

}  // namespace torchreel::graphs
