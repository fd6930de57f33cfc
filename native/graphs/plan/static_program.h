// A tape, made ready for graphs: which storage lives when, and which ops need not run at all.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "tape/capture/slots.h"
#include "tape/replay/plan.h"

namespace torchreel::graphs {

// Why a tape cannot be run on fixed memory, as the end of a sentence.
struct NotStatic : std::runtime_error {
  using std::runtime_error::runtime_error;
  uint32_t op = 0;  // of the program
};

struct StorageInfo {
  enum Kind : uint8_t { kMade, kExternal, kInput, kGradient, kConstant };  // kGradient: what a backward is given
  Kind kind = kMade;
  bool written = false;           // by an op, after it was made
  bool handed_out = false;        // the caller gets a tensor on it
  bool unplanned = false;         // it is a tensor that has no fixed memory
  size_t lowest = SIZE_MAX;       // byte that a slot begins with
  size_t extent = 0;              // bytes that slots reach to
  int64_t first = -1, last = -1;  // steps that use it
  c10::Storage memory;            // of an external one and of a constant
};

// How a step uses a slot. What it gives it writes.
struct SlotUse {
  uint32_t slot;
  bool writes;
};

// A part of a program that runs at a time of its own: the forward with what it keeps, or a segment of its backward.
class Part {
 public:
  static Part forward() { return Part(SIZE_MAX); }
  static Part backward(size_t segment) { return Part(segment); }
  bool is_forward() const { return segment_ == SIZE_MAX; }
  size_t segment() const { return segment_; }

 private:
  explicit Part(size_t segment) : segment_(segment) {}
  size_t segment_;
};

// The backward of outputs that one node of autograd stands for. Segments are in the order in which autograd runs them.
struct Segment {
  size_t boundary = 0;                // the op that it begins with
  std::vector<uint32_t> gradients;    // slots that it is given, one for each output; kNone for none
  std::vector<uint32_t> derivatives;  // slots that it gives
};

struct Recorded {
  std::vector<tape::PlanSlot> slots;
  std::vector<tape::Step> steps;
  std::vector<at::Tensor> tensors;  // by slot: what no op made
  std::vector<uint32_t> inputs;     // slots; the tensors among the arguments
  std::vector<uint32_t> outputs;    // slots
  std::vector<Segment> segments;    // of the backward; none if there is no backward
  std::vector<tape::Binding> bindings;
  std::vector<std::pair<at::Tensor, at::Tensor>> held_gradients;  // tensors whose gradient it finds, and that gradient
  bool elides = true;                                             // whether copies may be left out
  std::vector<uint32_t> bumps;  // by slot of what no op made: how often its version is counted up in a call
  size_t boundary = 0;          // the op that the backward begins with; the number of ops if there is none
};

class StaticProgram {
 public:
  // Throws NotStatic.
  explicit StaticProgram(Recorded recorded);

  const tape::PlanSlot& slot(uint32_t slot) const { return all_.slots[slot]; }
  const StorageInfo& storage_of(uint32_t slot) const { return storages_[all_.slots[slot].storage]; }
  const std::vector<StorageInfo>& storages() const { return storages_; }
  const std::vector<tape::Step>& steps() const { return all_.steps; }
  const Recorded& recorded() const { return all_; }
  // Among steps(), where parts begin that come after the forward; at least one.
  const std::vector<size_t>& boundaries() const { return boundaries_; }
  size_t begin(Part part) const { return part.is_forward() ? 0 : boundaries_[part.segment()]; }
  size_t end(Part part) const;
  bool has_backward() const;
  // Storages that the forward leaves for the backward.
  const std::vector<uint32_t>& saved() const { return saved_; }
  // Those of them that a segment reads.
  std::vector<uint32_t> saved_for(size_t segment) const;
  const at::Tensor& tensor(uint32_t slot) const { return all_.tensors[slot]; }
  // Whether a tensor without fixed memory is among what the step takes or gives.
  bool is_unplanned(const tape::Step& step) const;
  size_t ops() const { return ops_; }  // of the program
  // For each step, the op that it runs.
  std::vector<uint32_t> step_ops() const;
  std::vector<SlotUse> uses_of(size_t step) const;

  // Where a run may find that it is not the recorded program: what it has written to others until then.
  bool has_guards() const { return last_guard_ >= 0; }
  bool draws() const { return draws_; }  // from a random generator, in the forward
  bool draws_before_guard() const { return draws_before_guard_; }
  const std::vector<uint32_t>& written_before_guard() const { return written_before_guard_; }  // external slots
  // Tensors of others that it writes: their versions count on.
  const std::vector<uint32_t>& written() const { return written_; }  // external slots
  // Whether a run that stops half-way has changed nothing that others see.
  bool is_pure() const { return written_.empty() && written_inputs_.empty() && all_.bindings.empty() && !draws_; }
  const std::vector<uint32_t>& written_inputs() const { return written_inputs_; }  // indices among the inputs

 private:
  // The phases of the constructor, in their order; static_checks.h has the others.
  void find_kinds();
  void mark_handed_out();
  void leave_out();
  void find_lives();
  void find_extents();
  void find_saved();
  void find_guards();
  void find_writes();

  // Phases of leave_out().
  std::vector<bool> find_written_storages() const;
  void mark_constants(const std::vector<bool>& written);
  bool is_needless(const tape::Step& step) const;
  bool is_alias(const tape::Step& step) const;
  bool is_foldable(const tape::Step& step, const std::vector<bool>& written) const;
  bool has_constant_arguments(const tape::Step& step) const;
  void fold(const tape::Step& step);

  Recorded all_;
  std::vector<StorageInfo> storages_;
  std::vector<uint32_t> saved_, written_, written_before_guard_, written_inputs_;
  std::vector<size_t> boundaries_;
  size_t ops_ = 0;
  int64_t last_guard_ = -1;
  bool draws_ = false;
  bool draws_before_guard_ = false;
};

using Tensors = std::vector<at::Tensor>;

// Whether an op writes to an argument.
bool writes(const tape::Step& step, size_t argument);
// Whether an op changes sizes and strides of a tensor in place, or its history. The result is another slot on the same
// memory, so that it need not run.
bool changes_only_metadata(const tape::Step& step);

// Calls visit(slot, whether the step writes to it as an argument) for the arguments, then the results.
template <class Visit>
void for_each_slot(const tape::Step& step, Visit visit) {
  for (size_t i = 0; i < step.given.size(); i++) {
    for (uint32_t slot : step.given[i].slots) {
      if (slot != tape::kNone) visit(slot, writes(step, i));
    }
  }
  for (const auto& gave : step.gave) {
    for (uint32_t slot : gave.slots) {
      if (slot != tape::kNone) visit(slot, false);
    }
  }
}

// Marks it as conjugated or negated, as the slot is.
void set_bits(const at::Tensor& tensor, const tape::PlanSlot& slot);
// A tensor on memory, without autograd's keys.
at::Tensor tensor_on(const c10::Storage& storage, const tape::PlanSlot& slot);

}  // namespace torchreel::graphs
