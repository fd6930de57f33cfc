// A program that is ready to run: each op with its arguments, without Python between two ops.
//
// A replay of a tape owns one (`torchreel._tape.Plan`): it adds the steps, closes the plan, and calls run() with
// `mutex` held.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "tape/capture/digest.h"
#include "tape/replay/formula.h"
#include "tape/steps/ops.h"

namespace torchreel::tape {

// One view of one storage, as a program knows it.
struct PlanSlot {
  uint32_t storage;
  bool strided;    // and without conjugate and negative bits
  bool unplanned;  // not strided CPU memory: sparse, quantized, nested, on another device
  bool conjugate, negative;
  bool external;  // no op makes it
  bool input;
  c10::ScalarType dtype;
  c10::DimVector sizes, strides;
  int64_t offset;
  size_t extent = 0;  // bytes of the storage that it reaches to
};

struct Given {
  enum Kind { kConstant, kSlot, kSlots, kOptionalSlots, kStorage, kFormula, kFormulaTensor, kFormulas };
  Kind kind = kConstant;
  c10::IValue constant;
  std::vector<uint32_t> slots;    // kNone for an undefined one
  bool nested = false;            // kSlots that are the only list of a list of lists
  std::vector<Formula> formulas;  // a constant number of a list is a formula of one step
};

struct Gave {
  enum Kind { kNothing, kSlot, kSlots, kNumber };
  Kind kind = kNothing;
  std::vector<uint32_t> slots;
  c10::IValue number;
};

struct Step {
  const OpInfo* op = nullptr;
  uint32_t index = 0;  // in the program
  bool guarded = true;
  bool grad = true;           // whether autograd was on
  bool keeps_number = false;  // for a formula
  std::vector<Given> given;
  std::vector<Gave> gave;
  std::vector<uint32_t> frees;    // slots
  std::optional<int64_t> region;  // of an opaque one
  // Found at the first run: the kernel of the backend, if nothing above the backend takes part in the call.
  std::optional<c10::SafeKernelFunction> kernel;
  bool looked = false;
};

// A number that Python used has changed.
struct GuardFailure {
  uint32_t op;
  std::string recorded, now;
};
// The sizes or the dtype of a result differ from the recorded ones.
struct ShapeFailure {
  uint32_t op;
  std::string recorded, now;
};
struct OpFailure {
  uint32_t op;
  std::string message;
};
// The sizes, strides or dtype of a tensor of the state differ from the recorded ones.
struct StateFailure {
  uint32_t slot;
  std::string recorded, now;
};

// A gradient or data that the program leaves in a tensor of others.
struct Binding {
  enum Kind { kGradient, kData, kCopy };
  Kind kind;
  uint32_t owner;
  uint32_t value;  // kNone for no gradient
  bool cleared;
};
// A tensor has a gradient that it did not have when the tape was made, and the function does not clear it.
struct GradientFailure {
  uint32_t slot;
};

using Region = std::function<std::vector<at::Tensor>(int64_t region, const std::vector<at::Tensor>& given)>;

class Plan {
 public:
  explicit Plan(std::vector<PlanSlot> slots);

  void add(Step step) { steps_.push_back(std::move(step)); }
  // Call it after the last step: leaves out views, and finds what each step frees.
  void close(const std::vector<uint32_t>& kept);
  void set_external(uint32_t slot, const at::Tensor& tensor) { values_[slot] = tensor; }
  void bind(Binding binding) { bindings_.push_back(binding); }
  void set_region(Region region) { region_ = std::move(region); }

  // Runs once, and leaves gradients and data where the function did. Values of the kept slots are in value() until
  // clear(). Throws the failures above.
  void run(bool digests);
  void set_input(uint32_t slot, const at::Tensor& tensor) { values_[slot] = tensor; }
  const at::Tensor& value(uint32_t slot);
  void clear();
  const std::vector<std::pair<uint32_t, std::vector<std::optional<Digest>>>>& digests() const { return digests_; }
  size_t steps() const { return steps_.size(); }
  std::mutex mutex;

 private:
  // The phases of close(), in their order.
  void leave_out_views();
  void sort_slots();
  std::vector<int64_t> last_uses(const std::vector<uint32_t>& kept) const;
  void set_frees(const std::vector<int64_t>& last);
  void find_written();

  std::vector<bool> find_reshaped() const;
  bool is_elided(const Step& step, const std::vector<bool>& reshaped) const;
  bool is_state(uint32_t slot) const;
  void check_state() const;
  void check_gradients() const;
  void apply_bindings();
  void forget_stale_views();
  // Whether it is a tensor of the user's itself. Its shape may have changed during the run.
  bool is_external(const at::Tensor& tensor) const;
  void push(const Step& step, const Given& given);
  void take(Step& step, size_t first);
  void check(const Step& step, uint32_t slot, const at::Tensor& tensor);
  void call(Step& step);
  void note_digests(const Step& step, const std::vector<at::Tensor>& written);

  std::vector<PlanSlot> slots_;
  std::vector<Step> steps_;
  std::vector<at::Tensor> values_;
  std::vector<uint32_t> anchors_;      // by slot of a view that is left out: a slot of the same storage
  std::vector<uint32_t> persistent_;   // views of state, which stay from run to run
  std::vector<const void*> storages_;  // of externals, when these views were made
  std::vector<uint32_t> transient_;
  std::vector<double> numbers_;  // by op of the program
  torch::jit::Stack stack_;
  std::vector<std::pair<uint32_t, std::vector<std::optional<Digest>>>> digests_;
  std::vector<Binding> bindings_;
  std::vector<uint32_t> written_;  // external tensors that an op writes: each run counts up their versions
  Region region_;
  bool direct_ = false;
};

}  // namespace torchreel::tape
