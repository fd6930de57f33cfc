// Gives each storage of one part of a program its memory: in the pool, in the caller's tensors, or in the function's
// own.
//
// The constructor of Graph makes a StoragePlacement on its stack, calls place() once, and keeps the GraphMemory.
// Nothing here runs at a replayed call.
#pragma once

#include <cstdint>
#include <vector>

#include "graphs/inductor/lowering.h"
#include "graphs/plan/memory_plan.h"
#include "graphs/plan/pool.h"
#include "graphs/plan/static_program.h"

namespace torchreel::graphs {

// Memory that its storage does not own.
c10::Storage storage_at(char* data, size_t bytes);

// What the caller gets on memory that the graph wrote.
struct OutputMemory {
  uint32_t storage;
  Range range;
};

struct GraphMemory {
  std::vector<c10::Storage> storages;       // by storage; none for those that have no fixed memory
  std::vector<Range> ranges;                // by storage, of those in the pool
  std::vector<int64_t> lasts;               // by storage: the last step that needs it; kForever if others see it
  std::vector<std::vector<char*>> scratch;  // of each generated kernel
  std::vector<OutputMemory> outputs;
  std::vector<Range> saved;   // what the backward will read
  std::vector<Range> writes;  // all that a run may overwrite, merged
  size_t bytes = 0;           // how far into the pool it reaches
};

constexpr int64_t kForever = INT64_MAX;

class StoragePlacement {
 public:
  // `given` are the slots of the inputs or gradients. `bound_inputs` as for Graph. `lent` tells, by storage, what
  // foreign ops are given. All of it outlives the StoragePlacement.
  StoragePlacement(const StaticProgram& program, Part part, const Pool& pool, const Replacing& replacing,
                   const std::vector<uint32_t>& given, const std::vector<char*>& bound_inputs,
                   const std::vector<bool>& lent);

  // For a backward, before place(): the memory of its forward, whose saved ranges it leaves as they are if it `keeps`
  // them.
  void set_forward(const GraphMemory& forward, bool keeps);
  // `stays` gets all that lies in the pool, and when, sorted by address.
  GraphMemory place(const std::vector<Obstacle>& obstacles, Stays& stays);

 private:
  bool is_saved_by_forward(uint32_t storage) const { return forward_ != nullptr && saved_[storage]; }
  bool is_input(uint32_t storage) const;
  bool lies_here(uint32_t storage) const;
  Need need_of(uint32_t storage);

  // The phases of place(), in their order.
  void mark_handed_out();
  void bind_inputs();
  void borrow_memory(std::vector<Obstacle>& obstacles);
  void collect_needs();
  void add_scratch_needs();
  void note_obstacles(const std::vector<Obstacle>& obstacles, Stays& stays) const;
  void assign_scratch(Stays& stays);
  void assign_storages(Stays& stays);
  void note_saved();

  const StaticProgram& program_;
  Part part_;
  const Pool& pool_;
  const Replacing& replacing_;
  const std::vector<uint32_t>& given_;
  const std::vector<char*>& bound_inputs_;
  const std::vector<bool>& lent_;
  const GraphMemory* forward_ = nullptr;
  bool keeps_ = false;
  int64_t begin_, end_;                              // steps
  std::vector<bool> handed_out_, saved_, is_given_;  // by storage
  std::vector<Need> needs_;                          // of placed_, then of the scratch of generated kernels
  std::vector<uint32_t> placed_;                     // storages that need memory of the pool
  GraphMemory found_;
};

}  // namespace torchreel::graphs
