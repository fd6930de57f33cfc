// One part of a recording, bound to places in a pool: an engine for the CPU. It runs kernels one after the other, and
// does nothing else: whether it may run now, and with what, is for others to say.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fusion.h"
#include "kernel.h"
#include "layout.h"
#include "lowering.h"
#include "pool.h"
#include "recording.h"

namespace torchreel::graphs {

// A number that Python used is another one now, or a size that depends on values.
struct GuardFailure {
  uint32_t op;
  std::string recorded, now;
};

// Where an input is copied to.
struct InputPlace {
  at::Tensor tensor;  // with the sizes and strides of the input
  char* place;
  size_t bytes;  // to copy as they are; 0 if only tensor.copy_() will do
};

// What the caller gets on memory that the graph wrote.
struct OutputPlace {
  uint32_t storage;
  Range range;
};

class Graph {
 public:
  // `bound` has, for each input, where it lies if it is read and written there, and null if it is copied.
  // `forward` is the graph whose saved memory a backward reads. With `keeps` the backward leaves it as it is.
  // `lowering` knows of generated kernels, which are used, or tried, as it is known of them now.
  Graph(std::shared_ptr<const Recording> recording, Part part, std::shared_ptr<Pool> pool,
        const std::vector<Obstacle>& obstacles, const Graph* forward, bool keeps,
        const std::shared_ptr<Lowering>& lowering, std::vector<char*> bound = {});

  // Below autograd, in the thread of the pool, without the GIL. Throws GuardFailure, and whatever an op throws.
  void run();

  const Recording& recording() const { return *recording_; }
  Part part() const { return part_; }
  Pool& pool() const { return *pool_; }
  // Without a place for an input that is bound where it lies.
  const std::vector<InputPlace>& inputs() const { return inputs_; }
  const std::vector<char*>& bound() const { return bound_; }
  const std::vector<OutputPlace>& outputs() const { return outputs_; }
  // Places in the pool of what the backward will read.
  const std::vector<Range>& saved() const { return saved_; }
  // All that a run may overwrite.
  const std::vector<Range>& writes() const { return writes_; }
  size_t bytes() const { return bytes_; }
  const at::Tensor& tensor(uint32_t slot);
  // Of an input or an output without fixed memory.
  at::Tensor& loose(uint32_t slot) { return loose_[slot]; }
  // Lets go of what the last run left there.
  void forget_loose();

  size_t kernels() const { return kernels_.size(); }
  const Kernel& kernel(size_t place) const { return *kernels_[place]; }
  uint32_t op_of(size_t place) const { return ops_[place]; }
  uint32_t failed_op() const { return ops_.empty() ? 0 : ops_[std::min(current_, ops_.size() - 1)]; }
  // One run with the time of each kernel, in nanoseconds.
  std::vector<double> timed_run();

  uint64_t hits = 0;
  uint32_t id = 0;
  std::vector<std::pair<uint32_t, uint64_t>> parents;  // ids of graphs that ran before it, 0 for none, and how often
  size_t output_bytes() const;

 private:
  // `lasts` is given, for each storage that is made here, the last step that needs what is there.
  size_t place(const std::vector<Obstacle>& obstacles, const Graph* forward, bool keeps, std::vector<int64_t>& lasts);
  Placed bind(size_t step, bool exact, const std::vector<int64_t>& lasts);
  Placed bind_replaced(const Replaced& replaced, const std::shared_ptr<Lowering>& lowering,
                       const std::vector<int64_t>& lasts);
  std::unique_ptr<Kernel> bind_generated(const Cluster& cluster);
  c10::IValue argument(const tape::Given& given, bool& fixed);
  void make_inputs();
  void make_loose();

  std::shared_ptr<const Recording> recording_;
  Part part_;
  std::shared_ptr<Pool> pool_;
  Replacing replacing_;
  std::vector<std::vector<char*>> scratch_;  // of each generated kernel
  std::vector<c10::Storage> memory_;         // by storage
  std::vector<Range> ranges_;                // by storage, of those in the pool
  std::vector<at::Tensor> tensors_;          // by slot, made when they are needed
  Tensors loose_;                            // by slot, those that have no fixed memory; nothing if there are none
  std::vector<std::unique_ptr<Kernel>> kernels_;
  std::vector<uint32_t> ops_;
  std::vector<InputPlace> inputs_;
  std::vector<OutputPlace> outputs_;
  std::vector<Range> saved_, writes_;
  std::vector<char*> bound_;
  std::vector<double> numbers_;  // by op of the program
  size_t bytes_ = 0;
  size_t current_ = 0;
};

}  // namespace torchreel::graphs
