// One check of PythonGuards: reads the memory of one object of Python, its holder, and compares it with what a recorded
// call read there.
//
// PythonGuards own a list of checks. They ask holds() for a check whose words have changed, and for all of them if an
// object of the guards has died. All of it needs the GIL, and runs no code of users.
#pragma once

#include <pybind11/pybind11.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cpython/dict_version.h"
#include "graphs/guards/guard_value.h"

namespace torchreel::graphs {

inline PyTypeObject* as_type(PyObject* type) { return reinterpret_cast<PyTypeObject*>(type); }

struct Difference {
  std::string path;
  pybind11::tuple was, now;  // as shown() gives them
};

// Eight bytes of an object, and what they were. As long as all words of a check are as they were, the check holds.
struct Word {
  const uint64_t* at;
  uint64_t was;
};

template <typename T>
Word word(T* at, T was) {
  static_assert(sizeof(T) == sizeof(uint64_t));
  return {reinterpret_cast<const uint64_t*>(at), std::bit_cast<uint64_t>(was)};
}

struct Check {
  enum Kind : uint8_t { kFields, kEntries, kDict, kOrdered, kList, kSet, kLength, kType };
  struct Entry {
    pybind11::object name;
    Value key;
    Value value;
  };
  using Objects = std::vector<PyObject*>;

  Kind kind;
  ptrdiff_t owner;   // an index among the owners, or -1
  ptrdiff_t parent;  // an index among the checks, or -1
  std::string path;
  PyObject* object = nullptr;       // the container, or the type
  std::vector<PyObject**> fields;   // of kFields: the addresses that are read
  std::vector<std::string> labels;  // of the fields
  uint64_t number = 0;              // a length, or the version of a type
  bool is_dict_field = false;       // the last field is an object's dict, which the next check looks into
  std::vector<Entry> entries;
  DictSlots slots;  // of the names of kEntries
  size_t first_word = 0;

  // `was` is null if the field was empty.
  void add_field(PyObject** field, std::string label, PyObject* was, const Mortality& mortality);

  // `now` is scratch. With `strict` as Value::is(). An object that is as good as the one that was is adopted.
  bool holds(bool strict, Objects& now);
  // Finds the slots of the names, if the dict has other keys than before.
  void locate();
  void write_words(std::vector<Word>& words) const;
  // Whether its words tell of every change.
  bool has_all_words() const { return kind != kOrdered || number <= 1; }  // move_to_end() leaves the version as it is

  void add_differences(std::vector<Difference>& all, Objects& now) const;
  // Paths of all that it guards, for people.
  void add_paths(std::vector<std::string>& all) const;

 private:
  bool read(bool strict, Objects& now) const;
  void read_entries(Objects& now) const;
  bool read_ordered(bool strict, Objects& now) const;
  bool read_items(bool strict, Objects& now) const;
  std::string entry_path(const Entry& entry, size_t index) const;
};

// Calls take(key, value) for each item; a list and a set have no keys. The container must not change meanwhile.
template <typename Take>
void for_each_item(PyObject* container, Take take) {
  Py_ssize_t at = 0;
  PyObject *key, *value;
  Py_hash_t hash;
  if (PyList_Check(container)) {
    while (at < PyList_GET_SIZE(container)) take(nullptr, PyList_GET_ITEM(container, at++));
  } else if (PyDict_Check(container)) {
    while (PyDict_Next(container, &at, &key, &value)) take(key, value);
  } else {
    while (_PySet_NextEntry(container, &at, &value, &hash)) take(nullptr, value);
  }
}

// The version of a type's attributes and of those of its bases; 0 if it cannot have one.
uint64_t type_version(PyObject* type);

}  // namespace torchreel::graphs
