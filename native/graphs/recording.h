// What a tape says, made ready for graphs: which storage lives when, and which ops need not run at all.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "../tape/plan.h"

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
  bool loose = false;             // it is a tensor that has no fixed memory
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

// The parts of a recording that run at different times: a forward with what it keeps, and its backward.
enum class Part { kForward, kBackward };

struct Recorded {
  std::vector<tape::PlanSlot> slots;
  std::vector<tape::Step> steps;
  std::vector<at::Tensor> tensors;    // by slot: what no op made
  std::vector<uint32_t> inputs;       // slots; the tensors among the arguments
  std::vector<uint32_t> outputs;      // slots
  std::vector<uint32_t> gradients;    // slots that a backward is given, one for each output; kNone for none
  std::vector<uint32_t> derivatives;  // slots that a backward gives
  std::vector<tape::Binding> bindings;
  std::vector<std::pair<at::Tensor, at::Tensor>> held_gradients;  // tensors whose gradient it finds, and that gradient
  bool elides = true;                                             // whether copies may be left out
  std::vector<uint32_t> bumps;  // by slot of what no op made: how often its version is counted up in a call
  size_t boundary = 0;          // the op that a backward begins with; the number of ops if there is none
};

class Recording {
 public:
  // Throws NotStatic.
  explicit Recording(Recorded recorded);

  const tape::PlanSlot& slot(uint32_t slot) const { return all_.slots[slot]; }
  const StorageInfo& storage_of(uint32_t slot) const { return storages_[all_.slots[slot].storage]; }
  const std::vector<StorageInfo>& storages() const { return storages_; }
  const std::vector<tape::Step>& steps() const { return all_.steps; }
  const Recorded& recorded() const { return all_; }
  size_t boundary() const { return boundary_; }  // among steps()
  size_t begin(Part part) const { return part == Part::kForward ? 0 : boundary_; }
  size_t end(Part part) const { return part == Part::kForward ? boundary_ : all_.steps.size(); }
  bool has_backward() const { return !all_.derivatives.empty(); }
  // Storages that the forward leaves for the backward.
  const std::vector<uint32_t>& saved() const { return saved_; }
  const at::Tensor& tensor(uint32_t slot) const { return all_.tensors[slot]; }
  // Whether a tensor without fixed memory is among what the step takes or gives.
  bool is_loose(const tape::Step& step) const;
  size_t ops() const { return ops_; }  // of the program
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
  const std::vector<uint32_t>& written_inputs() const { return written_inputs_; }  // places among the inputs

 private:
  void find_kinds();
  void check(const tape::Step& step) const;
  void check_loose() const;
  bool is_alias(const tape::Step& step) const;
  bool is_foldable(const tape::Step& step, const std::vector<bool>& written) const;
  void fold(const tape::Step& step);
  void leave_out();
  void find_lives();
  void check_inputs() const;
  void find_guards();
  template <class Visit>
  void each_slot(const tape::Step& step, Visit visit) const;

  Recorded all_;
  std::vector<StorageInfo> storages_;
  std::vector<uint32_t> saved_, written_, written_before_guard_, written_inputs_;
  size_t boundary_ = 0;
  size_t ops_ = 0;
  int64_t last_guard_ = -1;
  bool draws_ = false;
  bool draws_before_guard_ = false;
};

using Tensors = std::vector<at::Tensor>;

// Whether an op writes to an argument.
bool writes(const tape::Step& step, size_t argument);
// Marks it as conjugated or negated, as the slot is.
void set_bits(const at::Tensor& tensor, const tape::PlanSlot& slot);
// A tensor on memory, without autograd's keys.
at::Tensor tensor_on(const c10::Storage& storage, const tape::PlanSlot& slot);

}  // namespace torchreel::graphs
