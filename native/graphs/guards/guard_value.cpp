#include "graphs/guards/guard_value.h"

#include <cstring>
#include <string>

namespace py = pybind11;

namespace torchreel::graphs {

namespace {

using Flag = std::shared_ptr<bool>;

PyObject* set_died(PyObject* capsule, PyObject*) {
  **static_cast<Flag*>(PyCapsule_GetPointer(capsule, nullptr)) = true;
  Py_RETURN_NONE;
}

PyMethodDef kSetDied{"died", set_died, METH_O, nullptr};

bool is_atom(PyObject* object) {
  return object == Py_None || object == Py_Ellipsis || PyBool_Check(object) || PyLong_CheckExact(object) ||
         PyFloat_CheckExact(object) || PyUnicode_CheckExact(object) || PyComplex_CheckExact(object) ||
         PyBytes_CheckExact(object);
}

bool is_plain_value(PyObject* object, int depth = 0) {
  if (is_atom(object)) return true;
  // NumPy's float64 is a float, and refers to nothing.
  if (PyFloat_Check(object)) return !PyObject_IS_GC(object);
  if (PyRange_Check(object)) return true;
  if (!PyTuple_CheckExact(object) || depth > 8) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); i++) {
    if (!is_plain_value(PyTuple_GET_ITEM(object, i), depth + 1)) return false;
  }
  return true;
}

// Reads tp_name: asking for __name__ could run Python code of a metaclass.
py::str type_name(PyTypeObject* type) {
  std::string name = type->tp_name;
  return py::str(name.substr(name.rfind('.') + 1));
}

// Compares bits: 0.0 and -0.0 differ, and a NaN equals itself.
bool same_bits(double a, double b) { return std::memcmp(&a, &b, sizeof a) == 0; }

// Compares start, stop and step. Python's == is not enough: range(0, 3, 2) == range(0, 4, 2), and a program can read
// stop.
bool same_range(PyObject* a, PyObject* b) {
  for (const char* name : {"start", "stop", "step"}) {
    auto one = py::reinterpret_steal<py::object>(PyObject_GetAttrString(a, name));
    auto other = py::reinterpret_steal<py::object>(PyObject_GetAttrString(b, name));
    if (!one || !other || PyObject_RichCompareBool(one.ptr(), other.ptr(), Py_EQ) != 1) return false;
  }
  return true;
}

// Compares two plain objects.
bool same_plain_value(PyObject* a, PyObject* b) {
  if (a == b) return true;
  if (Py_TYPE(a) != Py_TYPE(b)) return false;
  if (PyFloat_Check(a)) return same_bits(PyFloat_AS_DOUBLE(a), PyFloat_AS_DOUBLE(b));
  if (PyComplex_CheckExact(a)) {
    Py_complex one = PyComplex_AsCComplex(a), other = PyComplex_AsCComplex(b);
    return same_bits(one.real, other.real) && same_bits(one.imag, other.imag);
  }
  if (PyTuple_CheckExact(a)) {
    if (PyTuple_GET_SIZE(a) != PyTuple_GET_SIZE(b)) return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(a); i++) {
      PyObject* item = PyTuple_GET_ITEM(b, i);
      if (!is_plain_value(item) || !same_plain_value(PyTuple_GET_ITEM(a, i), item)) return false;
    }
    return true;
  }
  if (PyRange_Check(a)) return same_range(a, b);
  if (!PyLong_CheckExact(a) && !PyUnicode_CheckExact(a) && !PyBytes_CheckExact(a)) return false;
  return PyObject_RichCompareBool(a, b, Py_EQ) == 1;
}

}  // namespace

Mortality::Mortality() : died_(std::make_shared<bool>(false)) {
  auto capsule = py::reinterpret_steal<py::object>(PyCapsule_New(new Flag(died_), nullptr, [](PyObject* capsule) {
    delete static_cast<Flag*>(PyCapsule_GetPointer(capsule, nullptr));
  }));
  callback_ = py::reinterpret_steal<py::object>(PyCFunction_New(&kSetDied, capsule.ptr()));
  if (!callback_) throw py::error_already_set();
}

py::object Mortality::reference(PyObject* object) const {
  if (!PyType_SUPPORTS_WEAKREFS(Py_TYPE(object))) return {};
  auto reference = py::reinterpret_steal<py::object>(PyWeakref_NewRef(object, callback_.ptr()));
  if (!reference) PyErr_Clear();
  return reference;
}

// Whether guards of their own cover what a program reads of the object: an object of a class written in Python, or a
// cell. If another object takes its address, those guards see its contents.
bool is_looked_into(PyObject* object) {
  return PyCell_Check(object) || (Py_TYPE(object)->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0;
}

// An object of a subclass of int, str, tuple and the like: its value is in no attribute, so no other guard covers it.
bool is_value_of_own_class(PyObject* object) {
  return PyLong_Check(object) || PyFloat_Check(object) || PyUnicode_Check(object) || PyBytes_Check(object) ||
         PyComplex_Check(object) || PyTuple_Check(object);
}

bool is_container(PyObject* object) { return PyList_Check(object) || PyDict_Check(object) || PyAnySet_Check(object); }

Value Value::of(PyObject* object, const Mortality& mortality) {
  Value value;
  if (object == nullptr) return value;
  value.object = object;
  value.type = Py_TYPE(object);
  value.kind = kAddress;
  value.type_named = type_name(value.type);
  if (is_plain_value(object)) {
    value.kind = kPlain;
    value.keep = py::reinterpret_borrow<py::object>(object);
  } else if (PyTuple_Check(object) && Py_TYPE(object)->tp_dictoffset == 0) {
    value.kind = kTuple;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); i++) {
      value.items.push_back(of(PyTuple_GET_ITEM(object, i), mortality));
    }
  } else if (!is_container(object)) {
    if (auto reference = mortality.reference(object)) {
      value.kind = kWeak;
      value.keep = std::move(reference);
    } else if (!PyObject_IS_GC(object) || !is_looked_into(object) || is_value_of_own_class(object)) {
      value.kind = kHeld;
      value.keep = py::reinterpret_borrow<py::object>(object);
    }
  }
  return value;
}

bool Value::is(PyObject* now, bool strict) const {
  if (now == nullptr || kind == kAbsent) return now == nullptr && kind == kAbsent;
  switch (kind) {
    case kPlain: return now == object || (is_plain_value(now) && same_plain_value(object, now));
    case kWeak: return now == object && (!strict || PyWeakref_GET_OBJECT(keep.ptr()) == now);
    case kAddress: return now == object && Py_TYPE(now) == type;
    case kTuple: break;
    default: return now == object;
  }
  if (Py_TYPE(now) != type || PyTuple_GET_SIZE(now) != static_cast<Py_ssize_t>(items.size())) return false;
  for (size_t i = 0; i < items.size(); i++) {
    if (!items[i].is(PyTuple_GET_ITEM(now, i), strict)) return false;
  }
  return true;
}

void Value::adopt(PyObject* now) {
  object = now;
  if (kind == kPlain) keep = py::reinterpret_borrow<py::object>(now);
  for (size_t i = 0; i < items.size(); i++) items[i].adopt(PyTuple_GET_ITEM(now, i));
}

py::tuple Value::shown() const {
  if (kind == kAbsent) return py::tuple();
  if (kind == kPlain || kind == kHeld) return graphs::shown(object);
  return py::make_tuple(type_named);
}

py::tuple shown(PyObject* object) {
  if (object == nullptr) return py::tuple();
  py::str type = type_name(Py_TYPE(object));
  if (is_plain_value(object)) return py::make_tuple(type, py::handle(object));
  return py::make_tuple(type);
}

}  // namespace torchreel::graphs
