// Follows the Python of one call, opcode by opcode, with the operands of each.
//
// With a trace function the eval loop of CPython 3.11 saves the stack pointer in the frame before each opcode. So the
// operands of the opcode that is about to run lie in the frame, and its result is on top of the stack at the next event
// of the same frame. Rules in Python decide what an opcode means, and OpcodeAnswers for those that need no rule.
//
// Python makes a Follower for each call that is recorded with guards, and calls run() once.
#pragma once

#include <pybind11/pybind11.h>

#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "cpython/interpreter.h"
#include "graphs/guards/call_objects.h"
#include "graphs/guards/opcode_answers.h"

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

  CallObjects& objects() { return objects_; }

  // A function with this code, and all that it calls, is not followed.
  void pass_over(pybind11::object code) { passed_over_.push_back(std::move(code)); }
  // The next __init__ of an object of this class makes that object.
  void expect(pybind11::object type) { expected_.push_back(std::move(type)); }
  // Frames that are called from this one get tensors and contexts that the engine of autograd made just now.
  void adopt_from(PyObject* frame);
  // The names of the keyword arguments of the call that is about to run, or None. Clears them.
  pybind11::object take_names();
  uint64_t events() const { return events_; }
  uint64_t asked() const { return asks_; }
  bool memo = true;  // without it rules are asked everything: tests compare the two

 private:
  static int trace(PyObject*, PyFrameObject* frame, int what, PyObject* value);
  int take_call(PyFrameObject* frame);
  int take_opcode(PyFrameObject* frame);
  void take_exception(PyFrameObject* frame);
  int ask(PyFrameObject* frame, int opcode, int argument);
  bool is_own(PyCodeObject* code);
  bool is_passed_over(PyCodeObject* code) const;
  void enter(PyFrameObject* frame);
  void make_expected(torchreel_frame* frame);
  void make_cells(torchreel_frame* frame);
  void make_keywords(torchreel_frame* frame);
  void adopt(torchreel_frame* frame);
  void take_result(torchreel_frame_object* mirror);
  void note_callee(torchreel_frame* frame, int opcode, int argument);

  pybind11::object rules_, op_, result_, enter_, refuse_;
  std::array<bool, 256> wanted_{};
  CallObjects objects_;
  OpcodeAnswers answers_{objects_};
  std::string own_files_;
  std::unordered_map<PyCodeObject*, bool> own_;
  std::vector<pybind11::object> passed_over_;
  PyFrameObject* passing_ = nullptr;  // the frame that is not followed, until it ends
  std::unordered_set<PyObject*> entered_;
  std::vector<pybind11::object> expected_;
  pybind11::object adopts_;  // a frame
  PyObject* names_ = nullptr;
  PyObject* callee_ = nullptr;  // Python that the opcode on its way calls, until it runs
  uint64_t events_ = 0, asks_ = 0;
  bool stopped_ = false;
};

// Stands for an empty entry of the stack, in rules.
PyObject* null_mark();

// Whether a class statement made this type.
bool is_of_python(PyTypeObject* type);

}  // namespace torchreel::graphs
