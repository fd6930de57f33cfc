// Guards on Python: what a recorded call read of Python's objects, and whether it still is so.
//
// A cache entry owns its guards, and asks hold() before each replay. Python fills them by add_...() while the call is
// recorded, and ends with seal().
//
// Guards are a list of checks. A check reads the memory of one object, its holder. The holder is alive because a weak
// reference says so (its owner), or because an earlier check, its parent, holds: the parent found the holder where it
// was. So checks are made in the order of the list, and the first that fails ends it.
//
// Most checks are also written down as words. A dict has a word that changes whenever the dict does. If all words are
// as they were, these checks hold; if a word differs, its check decides.
#pragma once

#include <ATen/core/Tensor.h>
#include <pybind11/pybind11.h>

#include <string>
#include <vector>

#include "graphs/guards/check.h"
#include "graphs/guards/guard_value.h"
#include "torch/tensor_state.h"

namespace torchreel::graphs {

// All of it needs the GIL. None of it runs code of users, except C functions that a caller of add_ask() vouches for.
class PythonGuards {
 public:
  // Whether everything is as it was. Allocates nothing where that is so.
  bool hold();
  // The same, whatever became of the tensors: they may have got gradients since.
  bool hold_but_for_tensors() { return hold_by_checks() && asks_hold(); }
  std::vector<Difference> differences();  // all of them; sets nothing back
  uint64_t times_held() const { return times_held_; }

  // Each gives the number of its check. `owner` is of add_owner() or -1; `parent` is the number of a check or -1.
  // An object whose death ends the guards: it must take weak references.
  ptrdiff_t add_owner(pybind11::object object, std::string label);
  // Entries of a dict, by key: (key, value), or (key, absent).
  ptrdiff_t add_entries(ptrdiff_t owner, ptrdiff_t parent, std::string path, pybind11::object dict,
                        const pybind11::list& entries, const pybind11::object& absent);
  // All that a list, dict or set holds, in its order.
  ptrdiff_t add_whole(ptrdiff_t owner, ptrdiff_t parent, std::string path, pybind11::object container,
                      const pybind11::list& entries);
  ptrdiff_t add_length(ptrdiff_t owner, ptrdiff_t parent, std::string path, pybind11::object container,
                       uint64_t length);
  // With the version that type_version() gave when the type was asked.
  ptrdiff_t add_type(ptrdiff_t owner, ptrdiff_t parent, std::string path, pybind11::object type, uint64_t version);
  // All attributes of a class and of its bases, for one whose attributes are set and set back.
  ptrdiff_t add_class_attributes(ptrdiff_t owner, ptrdiff_t parent, std::string path, pybind11::object type);
  // The class of an object and, if it has one, which dict its attributes are in.
  ptrdiff_t add_class(ptrdiff_t owner, ptrdiff_t parent, std::string path, pybind11::object object,
                      const pybind11::object& type, const pybind11::object& dict);
  // Its code, default arguments and default keyword arguments; None where there are none.
  ptrdiff_t add_function(ptrdiff_t owner, ptrdiff_t parent, std::string path, pybind11::object function,
                         const pybind11::object& code, const pybind11::object& defaults,
                         const pybind11::object& keywords);
  // Its __name__, __qualname__, __doc__, __module__ or __annotations__; -1 where it is none of these.
  ptrdiff_t add_function_attribute(ptrdiff_t owner, ptrdiff_t parent, std::string path, pybind11::object function,
                                   const std::string& name, const pybind11::object& value);
  ptrdiff_t add_cell(ptrdiff_t owner, ptrdiff_t parent, std::string path, pybind11::object cell,
                     const pybind11::object& value, const pybind11::object& absent);
  ptrdiff_t add_weakref(ptrdiff_t owner, ptrdiff_t parent, std::string path, pybind11::object reference);
  // An attribute in __slots__; -1 where the descriptor is none of such.
  ptrdiff_t add_member(ptrdiff_t owner, ptrdiff_t parent, std::string path, pybind11::object object,
                       pybind11::object descriptor, const pybind11::object& value, const pybind11::object& absent);
  // Questions to a tensor, as a mask of TensorState.
  ptrdiff_t add_tensor(ptrdiff_t owner, ptrdiff_t parent, std::string path, pybind11::object tensor, uint32_t mask,
                       const TensorState& was);
  // A C function without effects is called again, and gives the same.
  ptrdiff_t add_ask(std::string path, pybind11::object function, pybind11::tuple args, pybind11::object expected);
  // Call it after the last add_...(): from here on a change is a change.
  bool seal();

  size_t words() const { return words_.size(); }
  std::vector<std::string> paths() const;  // of everything that is guarded

 private:
  struct Owner {
    std::string label;
    pybind11::object reference;  // weak
  };

  struct TensorCheck {
    ptrdiff_t owner;
    std::string path;
    const c10::TensorImpl* tensor;
    PyObject* object;
    uint32_t mask;
    TensorState was;
  };

  struct Ask {
    std::string path;
    pybind11::object function;
    pybind11::tuple args;
    Value expected;
  };

  ptrdiff_t add(Check check);

  bool is_gone(ptrdiff_t owner) const;
  size_t first_changed(size_t from) const;
  bool hold_by_checks();
  bool words_hold();
  bool tensors_hold() const;
  bool asks_hold();
  void write_all_words();

  Mortality mortality_;
  std::vector<Owner> owners_;
  std::vector<Check> checks_;
  std::vector<uint32_t> wordless_;  // checks that no words tell of
  std::vector<TensorCheck> tensors_;
  std::vector<Ask> asks_;
  std::vector<Word> words_;
  std::vector<uint32_t> word_checks_;  // the check of each word
  std::vector<PyObject*> now_;         // scratch
  std::vector<Word> fresh_;            // scratch
  uint64_t times_held_ = 0;
  bool written_ = false;  // whether words_ are those of the checks
};

// The __dict__ of an ordinary object, which has it from then on; a new reference, or nothing where it has none.
PyObject* instance_dict(PyObject* object);

}  // namespace torchreel::graphs
