// What a follower knows of the objects of a call: which were given to it, which the call made, and which cannot change.
//
// A Follower owns one. Its rules and OpcodeAnswers ask it at each opcode. It holds a reference to each object that the
// call made until nobody else has the object, so that an address means one object. Needs the GIL.
#pragma once

#include <pybind11/pybind11.h>

#include <unordered_set>
#include <vector>

namespace torchreel::graphs {

class CallObjects {
 public:
  // Objects of `plain` types cannot change.
  explicit CallObjects(const pybind11::iterable& plain);
  CallObjects(const CallObjects&) = delete;
  ~CallObjects() { close(); }

  bool is_plain(PyObject* object) const { return plain_.contains(Py_TYPE(object)); }
  // Tensors and containers among the arguments.
  void give(PyObject* object);
  bool is_given(PyObject* object) const { return given_.contains(object); }
  // The call made this object.
  void make(PyObject* object);
  // The call made these tensors, in tuples and lists that it made as well.
  void make_tensors(PyObject* value);
  bool is_fresh(PyObject* object) const { return fresh_.contains(object); }
  // A list, dict or set that the call made.
  bool is_fresh_container(PyObject* object) const {
    return (PyList_CheckExact(object) || PyDict_CheckExact(object) || PySet_CheckExact(object)) && is_fresh(object);
  }

  // Drops tensors that the call made just now and that nobody else has any more.
  void let_go_of_recent();
  // Drops all that the call made: from now on it dies when it would without us.
  void let_go();
  // Ends generators that nobody else has, as they would end without us: their `finally` may have effects. Calls
  // refuse(sentence, None) for one that is not at its end, because its `finally` is not followed.
  void end_generators(const pybind11::object& refuse) {
    if (!generators_.empty()) end_left_generators(refuse);
  }
  pybind11::list generators() const;  // that the call made, and somebody has
  // Drops everything.
  void close();

 private:
  void sweep(size_t from);
  void end_left_generators(const pybind11::object& refuse);

  std::unordered_set<PyTypeObject*> plain_;
  std::unordered_set<PyObject*> given_;
  std::unordered_set<PyObject*> fresh_;  // a reference of each is held, by one of these:
  std::vector<PyObject*> order_;         // in the order in which they came, without generators
  std::vector<PyObject*> generators_;    // that are alive
};

}  // namespace torchreel::graphs
