// One guarded recording of a call: the key and the guards that must hold, the replay, and what turns the replay's
// tensors into what the function returned.
//
// A CallCache owns its entries. Python fills an entry in after the recorded call, by the bindings; from then on
// CallCache::call() reads it at each call. All of it needs the GIL.
#pragma once

#include <pybind11/pybind11.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "graphs/call/backward/backward.h"
#include "graphs/call/modes.h"
#include "graphs/call/replay/replay.h"
#include "graphs/call/result.h"
#include "graphs/call/signature.h"
#include "graphs/guards/python_guards.h"

namespace torchreel::graphs {

// An output on the memory of an input, of an earlier output or of a tensor of the function's own. In eager it is a view
// of that tensor, or shares at least its version counter.
struct OutputAlias {
  enum From : uint8_t { kOutput, kInput, kOwn };
  uint32_t output;
  From from;
  uint32_t index;  // among the outputs or inputs, or a slot
  bool is_view;
};

class CacheEntry {
 public:
  static constexpr uint32_t kTimedRuns = 16;

  // `guards` is null if somebody else guards the function.
  CacheEntry(std::shared_ptr<Signature> signature, const Modes& modes, std::shared_ptr<Replay> replay,
             std::shared_ptr<PythonGuards> guards, uint64_t number);

  const std::shared_ptr<Signature> signature;
  const Modes modes;
  const std::shared_ptr<Replay> replay;
  const std::shared_ptr<PythonGuards> guards;
  const uint64_t number;
  Result result;
  pybind11::object rebuild;  // builds a result that only Python can build; else nothing
  bool verified = false;     // its first replay was compared with eager

  // Adds the backward of some outputs, as its next segment. `how` has all but what follows from the program.
  void differentiate(std::shared_ptr<Differentiation> how);
  const Differentiations& differentiations() const { return differentiations_; }

  // Outputs whose history the recorded call used up with a backward of its own. Autograd gets a node for them that says
  // so to whoever differentiates them again.
  void set_spent(const std::vector<uint32_t>& outputs);
  // Outputs that are other tensors on the memory of an input or of a tensor of the function's own.
  void set_detached(std::vector<uint32_t> outputs) { detached_ = std::move(outputs); }
  // Outputs on memory of other tensors that the caller can have; and outputs that the function makes in inference mode,
  // or out of it, other than its caller.
  void set_aliases(std::vector<OutputAlias> aliases, std::vector<std::pair<uint32_t, bool>> in_inference);

  // After a run, before autograd gets to know the results: makes them the tensors that eager gives.
  void relate(Tensors& results, const Tensors& given) const {
    for (uint32_t output : detached_) results[output] = results[output].detach();
    if (!aliases_.empty() || !in_inference_.empty()) relate_aliases(results, given);
  }
  // After autograd got to know the others.
  void mark_spent(Tensors& results) const {
    if (!spent_.empty()) connect_spent(results);
  }

  // The first runs are timed. If the fastest of them was long, other threads may have the GIL during the next.
  bool is_timed() const { return runs_ < kTimedRuns; }
  void add_time(std::chrono::nanoseconds time);
  bool is_long() const { return is_long_; }

 private:
  void relate_aliases(Tensors& results, const Tensors& given) const;
  void connect_spent(Tensors& results) const;

  Differentiations differentiations_;  // by segment of the backward
  std::vector<uint32_t> spent_, detached_;
  c10::intrusive_ptr<torch::autograd::Node> spent_node_;
  std::vector<OutputAlias> aliases_;
  std::vector<std::pair<uint32_t, bool>> in_inference_;
  uint32_t runs_ = 0;
  std::chrono::nanoseconds least_ = std::chrono::hours(1);
  bool is_long_ = false;
};

}  // namespace torchreel::graphs
