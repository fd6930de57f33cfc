// What the tape must know of an op beside its schema.
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
  bool shallow = false;       // does not read values: views, and empty_like() and others
  bool silent = false;        // has no effect on tensors: ranges of the profiler
  bool varying = false;       // the sizes of its results depend on values
  bool factory = false;       // has no tensor among its arguments
  bool parts = false;         // torch decomposes it into other ops
  std::vector<bool> written;  // for each argument
};

// Thread-safe. Its address is stable.
const OpInfo& info_of(const c10::OperatorHandle& op);
const OpInfo& op_named(const char* name, const char* overload);
// By its whole name: "aten::add.Tensor". Throws if this process has no such op.
const OpInfo& op_named(const std::string& name);

}  // namespace torchreel::tape
