// What Python's side of a recorded function was, and whether it still is: asked before each replay.
//
// All that is watched is a list of checks, of objects before what is in them: where all checks before it hold, the
// memory that a check reads is alive. Each check is also written down as words: where eight bytes are, and what they
// were. A dict has one that changes whenever the dict does. If all words are as they were, nothing has changed.
#pragma once

#include <pybind11/pybind11.h>

#include <bit>
#include <string>
#include <vector>

#include "watch_dict.h"
#include "watch_value.h"

namespace torchreel::graphs {

struct Difference {
  std::string path;
  pybind11::tuple was, now;  // as shown() gives them
};

// All of it needs the GIL, and none of it runs code of users.
class Watch {
 public:
  // Whether everything is as it was. Allocates nothing where that is so.
  bool same();
  std::vector<Difference> differences();  // all of them; sets nothing back

  uint64_t times_same() const { return times_same_; }  // since it was made or cleared

  void clear();

  // An object whose death is a change, unless it is `mortal`: made anew by each call. Gives a number for it. One that
  // cannot have weak references is kept.
  size_t add_owner(pybind11::object object, std::string label, bool mortal);
  // Names in a dict that its owner has for life: that of a module, or the globals of a function.
  void add_names(size_t owner, pybind11::dict dict, const std::vector<pybind11::str>& names);
  void add_instance(size_t owner, pybind11::object object, const std::vector<pybind11::str>& names);
  void add_class(size_t owner, pybind11::object type, const std::vector<pybind11::str>& names);
  void add_function(size_t owner, pybind11::object function);  // its code and default arguments
  void add_cell(size_t owner, pybind11::object cell, std::string path);
  // An attribute in __slots__; false where the descriptor is none of such.
  bool add_member(size_t owner, pybind11::object object, pybind11::object descriptor, const std::string& name);

  size_t words() const { return words_.size(); }
  std::vector<std::string> paths() const;  // of everything that is watched
  const std::vector<std::string>& too_long() const { return too_long_; }

 private:
  struct Owner {
    std::string label;
    pybind11::object reference;  // weak; or the object itself
    PyObject* object;
    bool mortal;
    bool gone = false;
  };

  struct Entry {
    pybind11::object name;
    Value key;
    Value value;
  };

  enum Kind : uint8_t { kField, kNames, kItems, kList, kSet };

  struct Check {
    Kind kind;
    size_t owner;
    ptrdiff_t parent;  // another check, which has to hold; or -1
    std::string path;
    PyObject* object = nullptr;  // the container
    PyObject** field = nullptr;  // or the place
    Py_ssize_t size = 0;         // of the container; for kNames the size does not matter
    bool contents = true;        // whether entries are all that the container holds
    bool is_dict_place = false;  // of an object: nothing but a dict can be there, and no two have had one version
    std::vector<Entry> entries;
    DictPlaces places;  // of the names of a kNames
    size_t first_word = 0;
  };

  struct Word {
    const uint64_t* at;
    uint64_t was;
  };

  template <typename T>
  static Word word(T* at, T was) {
    static_assert(sizeof(T) == sizeof(uint64_t));
    return {reinterpret_cast<const uint64_t*>(at), std::bit_cast<uint64_t>(was)};
  }

  void add(Check check, int depth);
  void add_field(size_t owner, PyObject** field, std::string path);
  void add_dict(size_t owner, ptrdiff_t parent, PyObject* dict, const std::vector<pybind11::str>& names);
  void add_container(size_t owner, ptrdiff_t parent, const std::string& path, PyObject* object, int depth);

  bool is_gone(Owner& owner);
  bool read(const Check& check, bool strict);
  bool holds(Check& check, bool strict);
  size_t first_changed(size_t from) const;
  bool same_by_checks();
  void locate(Check& check);
  void tell(const Check& check, std::vector<Difference>& all);
  std::string entry_path(const Check& check, const Entry& entry, size_t place) const;

  void write_words(const Check& check, std::vector<Word>& words) const;
  void write_value_words(const Value& value, std::vector<Word>& words) const;
  void write_all_words();

  Mortality mortality_;
  std::vector<Owner> owners_;
  std::vector<Check> checks_;
  std::vector<Word> words_;
  std::vector<uint32_t> word_checks_;  // the check of each word
  std::vector<std::string> too_long_;
  std::vector<PyObject*> now_;  // scratch
  std::vector<Word> fresh_;     // scratch
  uint64_t times_same_ = 0;
  bool written_ = false;  // whether words_ are those of the checks
};

// The __dict__ of an ordinary object, which has it from then on; a new reference, or nothing where it has none.
PyObject* instance_dict(PyObject* object);

// Of the extension torchreel._graphs.
void bind_watch(pybind11::module_& module);

}  // namespace torchreel::graphs
