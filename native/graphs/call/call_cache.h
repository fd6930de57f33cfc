// What `torchreel.graphed` returns, as Python calls it: from the arguments to the outputs without a line of Python.
#pragma once

#include <pybind11/pybind11.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graphs/call/backward/backward.h"
#include "graphs/call/replay/replay.h"
#include "graphs/call/signature.h"
#include "graphs/guards/python_guards.h"

namespace torchreel::graphs {

// The value that a function returned, with a leaf for each of its tensors.
struct Result {
  enum Kind { kTensor, kTuple, kList, kDict, kConstant };
  Kind kind = kConstant;
  size_t index = 0;
  pybind11::object value;  // a constant; the keys of a dict as a tuple
  std::vector<Result> parts;

  // `leaf` is the class of what stands for a tensor. Throws where there is a class that only Python can build.
  static Result of(const pybind11::handle& shape, const pybind11::handle& leaf);
  pybind11::object build(const std::vector<pybind11::object>& tensors) const;
};

// An output that lies on the memory of an input, of an output before it or of a tensor of the function's own: as eager
// has it, it is a view of that tensor, or shares at least its version counter.
struct OutputAlias {
  enum From : uint8_t { kOutput, kInput, kOwn };
  uint32_t output;
  From from;
  uint32_t index;  // among the outputs or inputs, or a slot
  bool is_view;
};

// A replay of one recorded call, with all that is asked before it may run: its key and its guards.
struct CacheEntry {
  std::shared_ptr<Signature> signature;
  Modes modes;
  std::shared_ptr<Replay> replay;
  std::shared_ptr<PythonGuards> guards;  // null where somebody else guards the function
  Result result;
  pybind11::object rebuild;           // for a result that only Python can build; else nothing
  Differentiations differentiations;  // of each segment of its backward
  uint64_t number = 0;
  bool verified = false;  // its first replay was held against eager
  // Outputs that had a history in the recorded call, which its own backward used up: autograd knows them, and says so
  // to whoever differentiates them again.
  std::vector<uint32_t> spent;
  c10::intrusive_ptr<torch::autograd::Node> spent_node;
  // Outputs that are other tensors on the memory of an input or of a tensor of the function's own.
  std::vector<uint32_t> detached;
  // Outputs that lie on the memory of another tensor that the caller can have.
  std::vector<OutputAlias> aliases;
  void relate(Tensors& results, const Tensors& given) const;
  // Outputs that are made in inference mode, or out of it, other than the caller.
  std::vector<std::pair<uint32_t, bool>> in_inference;
  void set_spent(const std::vector<uint32_t>& indices);
  void mark_spent(Tensors& results);
  // The least that some runs took decides whether other threads may have the GIL meanwhile.
  uint32_t runs = 0;
  std::chrono::nanoseconds least = std::chrono::hours(1);
  bool is_long = false;
  void time(std::chrono::nanoseconds one);
};

// Why a call was not replayed, for whoever runs it then.
struct CacheMiss {
  const char* why = "";  // "new", "foreign", "changed", or the name of an Outcome
  uint64_t entry = 0;
  std::string detail;
  uint32_t op = 0;
};

class CallCache {
 public:
  std::vector<std::shared_ptr<CacheEntry>> entries;
  bool on = true;
  uint64_t calls = 0;
  uint64_t verify = 0;        // every so many calls are left to the one who checks them
  bool verify_first = false;  // and so is the first replay of each

  // Null if the call has to be run by somebody else, without a Python error; null with one if it failed.
  // missed() then says why, in the thread of the call.
  PyObject* call(PyObject* const* args, size_t positional, PyObject* names);
  static const CacheMiss& last_miss();

 private:
  PyObject* run(CacheEntry& entry, const Tensors& given, PyObject* const* args, size_t positional, PyObject* names);
};

// The class CachedCall(cache, miss): calling it is CallCache::call, and miss(*args, **kwargs) where that gives nothing.
void bind_cached_call(pybind11::module_& module);

}  // namespace torchreel::graphs
