// One part of a static program, bound to addresses in a pool: an engine for the CPU.
//
// Branches own graphs, autograd nodes share them. A Replay calls run() once it has chosen the graph and copied the
// inputs. run() runs the kernels, one after the other or on two cores, and nothing else.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "graphs/inductor/lowering.h"
#include "graphs/kernels/kernel.h"
#include "graphs/kernels/layers/fusion.h"
#include "graphs/plan/dependence.h"
#include "graphs/plan/loans.h"
#include "graphs/plan/memory_plan.h"
#include "graphs/plan/pool.h"
#include "graphs/plan/schedule.h"
#include "graphs/plan/static_program.h"
#include "graphs/run/autotuner.h"
#include "graphs/run/lanes.h"
#include "graphs/run/placement.h"

namespace torchreel::graphs {

// A number that Python used has changed, or a size that depends on values.
struct GuardFailure {
  uint32_t op;
  std::string recorded, now;
};

// Where an input is copied to.
struct InputMemory {
  at::Tensor tensor;  // with the sizes and strides of the input
  char* address;
  size_t bytes;  // to copy as they are; 0 if only tensor.copy_() will do
};

// Kernels bound to memory, in the order in which one thread runs them.
struct Sequence {
  // Kernels from the end of the piece before up to `end`, in lanes or one after the other.
  struct Piece {
    size_t end;
    bool one_thread;
    std::unique_ptr<Lanes> lanes;
  };
  std::vector<std::unique_ptr<Kernel>> kernels;
  std::vector<uint32_t> ops;    // of the program, for each kernel
  std::vector<uint32_t> steps;  // for each kernel, its first step, counted in this order
  std::vector<Piece> pieces;    // if there are none, all kernels run one after the other
  bool two_cores = true;        // else the kernels of lanes run one after the other, too
  std::vector<Range> writes;
  size_t bytes = 0;  // how far into the pool it reaches

  void add(std::vector<BoundKernel> placed);
  size_t beside() const;  // kernels that run in lanes
};

class Graph {
 public:
  // `bound_inputs` has, for each input, the address at which it is read and written, or null if it is copied.
  // `forward` is the graph whose saved memory a backward reads. With `keeps` the backward leaves that memory as it is.
  // `lowering` has the generated kernels, which are used or still tried.
  Graph(std::shared_ptr<const StaticProgram> program, Part part, std::shared_ptr<Pool> pool,
        const std::vector<Obstacle>& obstacles, const Graph* forward, bool keeps,
        const std::shared_ptr<Lowering>& lowering, std::vector<char*> bound_inputs = {});

  // Below autograd, in the thread of the pool, without the GIL. Throws GuardFailure, and whatever an op throws.
  // With more than one core, some runs find out whether independent kernels are faster on two.
  void run(int cores = 1);

  const StaticProgram& program() const { return *program_; }
  Part part() const { return part_; }
  Pool& pool() const { return *pool_; }
  // Slots of the inputs, or of the gradients that a backward is given.
  const std::vector<uint32_t>& given() const;
  // Without an address for an input that is read in place.
  const std::vector<InputMemory>& inputs() const { return inputs_; }
  const std::vector<char*>& bound_inputs() const { return bound_inputs_; }
  const std::vector<OutputMemory>& outputs() const { return memory_.outputs; }
  // Ranges in the pool of what the backward will read.
  const std::vector<Range>& saved() const { return memory_.saved; }
  // All that a run may overwrite.
  const std::vector<Range>& writes() const { return memory_.writes; }
  size_t bytes() const { return sequence_.bytes; }
  const at::Tensor& tensor(uint32_t slot);
  // Of an input or an output without planned memory.
  at::Tensor& unplanned(uint32_t slot) { return unplanned_[slot]; }
  // The inputs or gradients of the run that is about to begin.
  void give(const Tensors& given) { given_now_ = &given; }
  // An op that keeps an argument on memory of the pool; -1 if none does.
  int64_t kept_op = -1;
  // Drops the unplanned tensors of the last run.
  void forget_unplanned();

  size_t kernels() const { return sequence_.kernels.size(); }
  size_t beside() const { return sequence_.beside(); }
  // How many kernels each layer has, in the order of their first kernels.
  std::vector<std::pair<std::string, size_t>> kernels_by_layer() const;
  const Kernel& kernel(size_t index) const { return *sequence_.kernels[index]; }
  uint32_t op_of(size_t index) const { return sequence_.ops[index]; }
  uint32_t failed_op() const;
  // One run with the time of each kernel, in nanoseconds.
  std::vector<double> timed_run();

  uint64_t hits = 0;
  uint32_t id = 0;
  std::vector<std::pair<uint32_t, uint64_t>> parents;  // ids of graphs that ran before it, 0 for none, and how often
  size_t output_bytes() const;

 private:
  // `stays` gets what lies in the pool, and when.
  void place(const std::vector<Obstacle>& obstacles, const Graph* forward, bool keeps, Stays& stays);
  // With `stays`, the kernel may use memory that is idle at its step.
  BoundKernel bind(size_t step, const std::vector<int64_t>& lasts, const Stays* stays = nullptr);
  Idle idle_at(int64_t step, const Stays& stays) const;
  BoundKernel bind_replaced(const Replaced& replaced, const std::shared_ptr<Lowering>& lowering);
  std::unique_ptr<Kernel> bind_generated(const Cluster& cluster);
  std::unique_ptr<Kernel> kernel_for(const KernelCall& call, const tape::Step& step, size_t index);
  KernelCall call_of(const tape::Step& step);
  // By storage: whether a foreign op is given it, and may keep it.
  std::vector<bool> lent() const;
  std::unique_ptr<Loans> loans_for(const tape::Step& step);
  int64_t input_on(uint32_t storage) const;
  void run(Sequence& sequence);
  // For two cores: see graph_cores.cpp.
  void run_and_learn();
  bool make_rival();
  void settle(Autotuner::Candidate winner);
  std::vector<Work> works();
  std::vector<Access> accesses(size_t kernel);
  bool is_inner(uint32_t storage) const;
  size_t end_of(size_t kernel) const;
  std::unique_ptr<Sequence> laid_out_for(const Schedule& schedule);
  void place_inner(const Schedule& schedule, Sequence& made, std::vector<int64_t>& lasts);
  std::vector<Life> inner_lives(const Schedule& schedule, std::vector<int64_t>& lasts) const;
  std::vector<Obstacle> keep_outer(Sequence& made) const;
  void add_stretch(const Stretch& stretch, Sequence& made, const std::vector<int64_t>& lasts, int64_t& position);
  c10::IValue argument(const tape::Given& given, bool& fixed);
  void make_inputs();
  void make_unplanned();

  std::shared_ptr<const StaticProgram> program_;
  Part part_;
  std::shared_ptr<Pool> pool_;
  Replacing replacing_;
  GraphMemory memory_;
  const Tensors* given_now_ = nullptr;
  std::vector<at::Tensor> tensors_;  // by slot, made when they are needed
  Tensors unplanned_;                // by slot; empty if all have planned memory
  Sequence sequence_;
  std::unique_ptr<Sequence> rival_;  // the same for two cores, until the autotuner has decided
  Autotuner autotuner_;
  std::vector<InputMemory> inputs_;
  std::vector<char*> bound_inputs_;
  std::vector<double> numbers_;  // by op of the program
  bool exact_;
  const Sequence* running_ = &sequence_;
  size_t current_ = 0;
};

}  // namespace torchreel::graphs
