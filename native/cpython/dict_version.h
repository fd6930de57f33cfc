// What CPython keeps of a dict and shows to nobody: its version, and where the values of its names are.
//
// CPython 3.14 has no versions of dicts: whatever takes their place there, takes it in this file.
#pragma once

#include <Python.h>

#include <cstdint>
#include <vector>

namespace torchreel::graphs {

// A number that changes whenever the dict does, and that no other dict has ever had.
const uint64_t* dict_version(PyObject* dict);

// Where a dict has the value of a name, so that it can be read again without looking it up.
// Needs the GIL. A dict that has grown, or that shares its keys with others, is looked up in anew.
class DictSlots {
 public:
  // The names have to live as long as this.
  void find(PyObject* dict, const std::vector<PyObject*>& names);
  // Whether the slots are those of this dict as it is now.
  bool fit(PyObject* dict) const;
  // The value of a name by its number, where the slots fit; nothing where it was absent or has been deleted.
  PyObject* at(size_t number) const;

 private:
  struct Slot {
    PyObject* name;
    PyObject* const* value = nullptr;  // the name of an entry is right before its value
  };
  const void* keys_ = nullptr;
  int size_ = 0;
  std::vector<Slot> slots_;
};

}  // namespace torchreel::graphs
