// What an object of Python was when a graph was recorded, so that it can be told whether another is as good.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace torchreel::graphs {

// Tells that an object has died to which guards have a weak reference: only then can an address mean another object.
class Mortality {
 public:
  Mortality();
  bool died() const { return *died_; }
  void forget() { *died_ = false; }
  // A weak reference that reports the object's death here; nothing where the object cannot have one.
  pybind11::object reference(PyObject* object) const;

 private:
  std::shared_ptr<bool> died_;
  pybind11::object callback_;
};

// Keeps nothing alive but plain values, which hold nothing themselves. All of it needs the GIL and runs no code of
// users.
struct Value {
  enum Kind : uint8_t {
    kAbsent,   // there was none
    kPlain,    // a number, a string ...: another one with the same bits is as good
    kHeld,     // itself only, and kept: an object of C code that has no weak references
    kWeak,     // itself only, by a weak reference
    kAddress,  // itself only, as far as its address and type tell
    kTuple,    // by its items
  };

  static Value of(PyObject* object, const Mortality& mortality);  // a null pointer is an absent one

  // With `strict` also those are seen that died and whose address is in use again.
  bool is(PyObject* now, bool strict) const;
  // Whether `now` surely is, by a look at its address.
  bool is_at_once(PyObject* now) const { return now == object && (kind == kPlain || kind == kHeld || kind == kWeak); }
  // Where `now` is as good, it is the object from now on.
  void adopt(PyObject* now);
  pybind11::tuple shown() const;  // as below

  Kind kind = kAbsent;
  PyObject* object = nullptr;  // only its address may be used, unless it is kept
  PyTypeObject* type = nullptr;
  pybind11::object type_named;  // the type may be gone, its name is not
  pybind11::object keep;        // the object itself, or a weak reference to it
  std::vector<Value> items;
};

// An object as people may see it: the name of its type and, where it is plain, itself; nothing for an absent one.
pybind11::tuple shown(PyObject* object);
bool is_container(PyObject* object);  // a list, a dict or a set

}  // namespace torchreel::graphs
