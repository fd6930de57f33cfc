// What an opcode means, where no rule of Python is needed to tell: it reads only what the call itself has made, or what
// a rule was asked before.
//
// A Follower owns one, and asks it before each opcode that rules know. Needs the GIL.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <unordered_set>
#include <vector>

#include "cpython/interpreter.h"
#include "graphs/guards/call_objects.h"

namespace torchreel::graphs {

class OpcodeAnswers {
 public:
  // kAsk: ask the rule. kNothing: there is nothing to guard. kMake: the result is new.
  enum Answer { kAsk, kNothing, kMake };
  // A read: a name, or an attribute of an object.
  struct Read {
    const void* holder = nullptr;
    const void* name = nullptr;
    bool operator==(const Read&) const = default;
  };

  explicit OpcodeAnswers(const CallObjects& objects) : objects_(objects) {}

  // With kAsk, `to_note` may be a read that needs no rule the next time, if the rule has nothing to say to its result.
  Answer answer(torchreel_frame* frame, int opcode, int argument, Read& to_note) const;
  void note(const Read& read);
  void clear();

 private:
  struct Hash {
    size_t operator()(const Read& read) const {
      return reinterpret_cast<uintptr_t>(read.holder) * 0x9e3779b97f4a7c15u ^ reinterpret_cast<uintptr_t>(read.name);
    }
  };

  Answer answer_once(const Read& read, Read& to_note) const;
  Answer answer_attribute(torchreel_frame* frame, int argument, Read& to_note) const;
  Answer answer_truth(PyObject* value) const;
  Answer answer_operator(torchreel_frame* frame) const;
  Answer answer_identity(torchreel_frame* frame) const;
  Answer answer_subscript(torchreel_frame* frame) const;
  Answer answer_store(torchreel_frame* frame) const;
  Answer answer_call(torchreel_frame* frame, int argument) const;
  bool has_given_key(torchreel_frame* frame, int opcode, int argument) const;

  const CallObjects& objects_;
  std::unordered_set<Read, Hash> asked_;
  std::vector<pybind11::object> kept_;  // the holders in asked_
};

}  // namespace torchreel::graphs
