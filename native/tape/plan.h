// A program made ready to run: every op with its arguments found, without Python between two ops.
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

#include "tape/digest.h"
#include "tape/formula.h"
#include "tape/ops.h"

namespace torchreel::tape {

// One view of one storage, as a program knows it.
struct PlanSlot {
  uint32_t storage;
  bool strided;    // and without the bits that only an op can set
  bool unplanned;  // its elements do not lie in CPU memory by sizes and strides: sparse, quantized, on another device
                   // ...
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
  std::vector<Formula> formulas;  // a number of a list that is constant is a formula of one step
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
  // Found at the first run: the kernel itself, where nothing above the backend has a part in the call.
  std::optional<c10::SafeKernelFunction> kernel;
  bool looked = false;
};

// A value that Python used is another one now.
struct GuardFailure {
  uint32_t op;
  std::string recorded, now;
};
// The sizes or the dtype of a result are others than recorded.
struct ShapeFailure {
  uint32_t op;
  std::string recorded, now;
};
struct OpFailure {
  uint32_t op;
  std::string message;
};
// A tensor of the state has other sizes, strides or another dtype than recorded.
struct StateFailure {
  uint32_t slot;
  std::string recorded, now;
};

// What is left behind in a tensor that is not the program's own.
struct Binding {
  enum Kind { kGradient, kData, kCopy };
  Kind kind;
  uint32_t owner;
  uint32_t value;  // kNone for no gradient
  bool cleared;
};
// A gradient is there where there was none when the tape was made, and the function does not clear it.
struct GradientFailure {
  uint32_t slot;
};

using Region = std::function<std::vector<at::Tensor>(int64_t region, const std::vector<at::Tensor>& given)>;

class Plan {
 public:
  explicit Plan(std::vector<PlanSlot> slots);

  void add(Step step) { steps_.push_back(std::move(step)); }
  // After the last step: leaves out views, finds what to free when.
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
  bool is_elided(const Step& step, const std::vector<bool>& reshaped) const;
  void check_state() const;
  void check_gradients() const;
  void apply_bindings();
  void forget_stale_views();
  // Whether it is a tensor of the user's itself, which may have been given another shape on the way.
  bool is_external(const at::Tensor& tensor) const;
  void push(const Step& step, const Given& given);
  void take(Step& step, size_t first);
  void check(const Step& step, uint32_t slot, const at::Tensor& tensor);
  void call(Step& step);
  void note_digests(const Step& step, const std::vector<at::Tensor>& written);

  std::vector<PlanSlot> slots_;
  std::vector<Step> steps_;
  std::vector<at::Tensor> values_;
  std::vector<uint32_t> anchors_;      // the slot whose tensor has the storage of a view that is left out
  std::vector<uint32_t> persistent_;   // views of state, which stay from run to run
  std::vector<const void*> storages_;  // of externals, when these views were made
  std::vector<uint32_t> transient_;
  std::vector<double> numbers_;  // by op of the program
  torch::jit::Stack stack_;
  std::vector<std::pair<uint32_t, std::vector<std::optional<Digest>>>> digests_;
  std::vector<Binding> bindings_;
  std::vector<uint32_t> written_;  // tensors of others that an op writes: their versions count on
  Region region_;
  bool direct_ = false;
};

}  // namespace torchreel::tape
