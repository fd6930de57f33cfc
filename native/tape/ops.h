// What the tape must know of an op beside its schema, found once.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <vector>

namespace torchreel::tape {

struct OpInfo {
  explicit OpInfo(c10::OperatorHandle op);

  c10::OperatorHandle handle;
  c10::OperatorName operator_name;
  const void* schema;
  std::string name;  // "aten::add.Tensor"
  size_t arguments;
  size_t results;
  bool random = false;        // draws from a generator
  bool view = false;          // gives views of its first argument, and nothing else
  bool reshapes = false;      // changes sizes, strides or the storage of its first argument
  bool unset = false;         // gives memory that nobody has written
  bool blank = false;         // ... and that is new
  bool shallow = false;       // does not look at values: views, and what is made like another
  bool silent = false;        // of no consequence for tensors: ranges of the profiler
  bool varying = false;       // sizes of its results depend on more than sizes
  bool factory = false;       // has no tensor among its arguments
  bool parts = false;         // torch itself runs it as a number of others
  std::vector<bool> written;  // for each argument
};

// Thread-safe. Stays where it is.
const OpInfo& info_of(const c10::OperatorHandle& op);
const OpInfo& op_named(const char* name, const char* overload);

}  // namespace torchreel::tape
