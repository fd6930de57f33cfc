// Follows the Python of one call, opcode by opcode, with the operands of each.
//
// With a trace function the eval loop of CPython 3.11 saves the stack pointer in the frame before each opcode. So the
// operands of the opcode that is about to run lie in the frame, and its result is on top of the stack at the next event
// of the same frame. What an opcode means is decided by rules in Python; those that read only what the call itself has
// made, or that were asked before, are answered here.
#pragma once

#include <pybind11/pybind11.h>

#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "cpython/interpreter.h"

namespace torchreel::graphs {

// Needs the GIL. One call in a thread at a time.
class Follower {
 public:
  // `rules` has op(frame, opcode, argument) -> what to tell the result to, or None; result(told, value);
  // enter(function) for each function that runs and was not made by the call; refuse(sentence, frame).
  // `opcodes` are those that rules know. Objects of `plain` types cannot change. Frames of `own_files` are ours.
  Follower(pybind11::object rules, const std::vector<int>& opcodes, const pybind11::iterable& plain,
           std::string own_files);
  Follower(const Follower&) = delete;
  ~Follower();

  // Whether the thread has a trace function already: nothing can be followed then.
  static bool is_impossible();
  pybind11::object run(const pybind11::object& function, const pybind11::tuple& args, const pybind11::dict& kwargs);
  // Lets go of all objects: the rules refer to the follower, and the follower to the rules.
  void close();
  // From here on nothing more is asked; the call goes on, and nothing that it makes is kept.
  void stop() { stopped_ = true; }

  // Objects that the call made: they are kept until nobody else has them, so that an address means one object.
  void make(PyObject* object);
  bool is_fresh(PyObject* object) const { return fresh_.contains(object); }
  // Tensors and containers among the arguments.
  void give(PyObject* object);
  bool is_given(PyObject* object) const { return given_.contains(object); }
  bool is_plain(PyObject* object) const { return plain_.contains(Py_TYPE(object)); }

  // The next __init__ of an object of this class makes it.
  // Lets go of tensors that the call made just now and that nobody has any more.
  void let_go_of_recent();
  // A function with this code, and all that it calls, is not followed.
  void pass_over(pybind11::object code) { passed_over_.push_back(std::move(code)); }
  void expect(pybind11::object type) { expected_.push_back(std::move(type)); }
  // Frames that are called from this one get tensors and contexts that the engine of autograd made just now.
  void adopt_from(PyObject* frame);
  // The names of the keyword arguments of the call that is about to run, or None. Clears them.
  pybind11::object take_names();
  pybind11::list generators() const;  // that the call made, and somebody has
  uint64_t events() const { return events_; }
  uint64_t asked() const { return asks_; }
  bool memo = true;  // tests ask everything, to hold the two against each other

 private:
  enum Answer { kAsk, kNothing, kMake };
  struct Pair {
    const void *holder, *name;
    bool operator==(const Pair&) const = default;
  };
  struct PairHash {
    size_t operator()(const Pair& pair) const {
      return reinterpret_cast<uintptr_t>(pair.holder) * 0x9e3779b97f4a7c15u ^ reinterpret_cast<uintptr_t>(pair.name);
    }
  };

  static int trace(PyObject*, PyFrameObject* frame, int what, PyObject* value);
  int take_call(PyFrameObject* frame);
  int take_opcode(PyFrameObject* frame);
  void take_exception(PyFrameObject* frame);
  int ask(PyFrameObject* frame, int opcode, int argument);
  Answer answer(torchreel_frame* frame, int opcode, int argument, Pair& to_note);
  Answer answer_read(torchreel_frame* frame, int opcode, int argument, Pair& to_note);
  Answer answer_call(torchreel_frame* frame, int argument) const;
  bool is_own(PyCodeObject* code);
  bool is_container_of_call(PyObject* object) const;
  void adopt(torchreel_frame* frame);
  void make_tensors(PyObject* value);
  void sweep(size_t from);
  void let_go();
  void end_generators();
  void note_callee(torchreel_frame* frame, int opcode, int argument);
  bool has_given_key(torchreel_frame* frame, int opcode, int argument) const;

  pybind11::object rules_, op_, result_, enter_, refuse_;
  std::array<bool, 256> wanted_{};
  std::unordered_set<PyTypeObject*> plain_;
  std::string own_files_;
  std::unordered_map<PyCodeObject*, bool> own_;
  std::vector<pybind11::object> passed_over_;
  PyFrameObject* passing_ = nullptr;     // the frame that is not followed, until it ends
  std::unordered_set<PyObject*> fresh_;  // a reference of each is held
  std::vector<PyObject*> order_;         // the same, as they came, without generators
  std::vector<PyObject*> generators_;    // the same: those that are alive
  std::unordered_set<PyObject*> given_;
  std::unordered_set<PyObject*> entered_;
  std::unordered_set<Pair, PairHash> asked_;
  std::vector<pybind11::object> kept_;  // the holders in asked_
  std::vector<pybind11::object> expected_;
  pybind11::object adopts_;  // a frame
  PyObject* names_ = nullptr;
  PyObject* callee_ = nullptr;  // Python that the opcode on its way calls, until it runs
  uint64_t events_ = 0, asks_ = 0;
  bool stopped_ = false;
};

void bind_follower(pybind11::module_& module);

}  // namespace torchreel::graphs
