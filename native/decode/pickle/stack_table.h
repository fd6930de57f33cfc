// The distinct stacks of a memory snapshot: lists of frames, which are dictionaries, each with a number.
// Lists and frames that are the same object are known by their address; frames of the same content have the same
// number too. Requires the GIL. The lists must stay alive, and unchanged, as long as the table is used.
#pragma once

#include <Python.h>

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace torchreel {

// A reference that is given back at the end.
struct Release {
  void operator()(PyObject* object) const { Py_DECREF(object); }
};
using Reference = std::unique_ptr<PyObject, Release>;

// Throws PythonError.
class StackTable {
 public:
  StackTable();

  // The number of a list or tuple, -1 for None; false for anything else.
  bool number(PyObject* list, int32_t* number);

  // One object for each distinct frame. What is no proper frame is among them too: whoever reads them checks.
  PyObject* frames() const { return frames_.get(); }
  // Of stack n, the numbers of its frames are content[ends[n - 1]] to content[ends[n]].
  const std::vector<int64_t>& ends() const { return ends_; }
  const std::vector<int32_t>& content() const { return content_; }

 private:
  int32_t find_or_add(PyObject** frames, size_t count);
  int32_t frame_number(PyObject* frame);
  int32_t same_frame(PyObject* frame);
  bool equal(int32_t number) const;

  uint64_t seed_;  // so that no file can be made whose stacks all have the same hash
  std::unordered_map<PyObject*, int32_t> lists_;
  std::unordered_map<PyObject*, int32_t> frame_numbers_;
  std::unordered_multimap<uint64_t, int32_t> hashes_;
  Reference frames_;      // a list
  Reference by_content_;  // a dictionary
  std::vector<int64_t> ends_;
  std::vector<int32_t> content_;
  std::vector<int32_t> scratch_;  // the stack that is being looked for
};

}  // namespace torchreel
