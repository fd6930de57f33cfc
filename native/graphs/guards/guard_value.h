// Value: what a guard remembers of an object of Python, to tell later whether the object found in its place is the
// same, or equal where only the value counts.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace torchreel::graphs {

// Notes when an object dies to which guards have a weak reference. Until then, its address can belong to no other
// object, and comparing addresses is enough.
class Mortality {
 public:
  Mortality();
  bool died() const { return *died_; }
  void forget() { *died_ = false; }
  // A weak reference that sets died() when the object dies; nothing if the object takes no weak references.
  pybind11::object reference(PyObject* object) const;

 private:
  std::shared_ptr<bool> died_;
  pybind11::object callback_;
};

// Keeps an object alive only if it is kPlain or kHeld. All functions need the GIL, and none runs code of the user's.
struct Value {
  enum Kind : uint8_t {
    kAbsent,   // there was no object
    kPlain,    // a number, a string, a tuple of these: any object with the same type and bits is equal
    kHeld,     // only the object itself, which is kept alive: a C object that takes no weak references
    kWeak,     // only the object itself, by a weak reference
    kAddress,  // only the object itself, by its address and its type
    kTuple,    // a tuple with equal items
  };

  // A null pointer makes a kAbsent value.
  static Value of(PyObject* object, const Mortality& mortality);

  // Whether `now` is the remembered object, or equal to it. With `strict`, weak references are asked, too: this finds
  // another object at the address of one that died.
  bool is(PyObject* now, bool strict) const;
  // The quick form: true only if the address alone proves it.
  bool is_at_once(PyObject* now) const { return now == object && (kind == kPlain || kind == kHeld || kind == kWeak); }
  // Remembers `now`, which is equal, so that is_at_once() finds it next time.
  void adopt(PyObject* now);
  // For messages: as the function shown() below.
  pybind11::tuple shown() const;

  Kind kind = kAbsent;
  PyObject* object = nullptr;  // dereference it only if `keep` keeps it alive
  PyTypeObject* type = nullptr;
  pybind11::object type_named;  // the name of the type, which may be gone
  pybind11::object keep;        // kPlain, kHeld: the object; kWeak: the weak reference
  std::vector<Value> items;
};

// An object for a message: (name of its type, itself) if it is plain, else (name of its type,), and () for a null
// pointer.
pybind11::tuple shown(PyObject* object);
bool is_container(PyObject* object);  // a list, a dict or a set

}  // namespace torchreel::graphs
