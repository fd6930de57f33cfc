#include "graphs/guards/python_guards.h"

#include <structmember.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>

namespace py = pybind11;

namespace torchreel::graphs {

namespace {

PyObject* unless(const py::object& value, const py::object& absent) { return value.is(absent) ? nullptr : value.ptr(); }

PyObject* unless_none(const py::object& value) { return value.is_none() ? nullptr : value.ptr(); }

}  // namespace

ptrdiff_t PythonGuards::add_owner(py::object object, std::string label) {
  auto reference = mortality_.reference(object.ptr());
  if (!reference) throw py::type_error("An owner of guards must take weak references.");
  owners_.push_back({std::move(label), std::move(reference)});
  return static_cast<ptrdiff_t>(owners_.size()) - 1;
}

ptrdiff_t PythonGuards::add(Check check) {
  written_ = false;
  checks_.push_back(std::move(check));
  return static_cast<ptrdiff_t>(checks_.size()) - 1;
}

ptrdiff_t PythonGuards::add_entries(ptrdiff_t owner, ptrdiff_t parent, std::string path, py::object dict,
                                    const py::list& entries, const py::object& absent) {
  Check check{Check::kEntries, owner, parent, std::move(path), dict.ptr()};
  for (const auto& pair : entries) {
    auto both = py::reinterpret_borrow<py::tuple>(pair);
    py::object key = both[0], value = both[1];
    check.entries.push_back({key, Value::of(key.ptr(), mortality_), Value::of(unless(value, absent), mortality_)});
  }
  return add(std::move(check));
}

ptrdiff_t PythonGuards::add_whole(ptrdiff_t owner, ptrdiff_t parent, std::string path, py::object container,
                                  const py::list& entries) {
  PyObject* object = container.ptr();
  Check::Kind kind = PyList_Check(object)                                  ? Check::kList
                     : PyAnySet_Check(object)                              ? Check::kSet
                     : PyDict_CheckExact(object) || !PyODict_Check(object) ? Check::kDict
                                                                           : Check::kOrdered;
  Check check{kind, owner, parent, std::move(path), object};
  bool keyed = PyDict_Check(object);
  for (const auto& entry : entries) {
    if (!keyed) {
      check.entries.push_back({{}, {}, Value::of(entry.ptr(), mortality_)});
      continue;
    }
    auto both = py::reinterpret_borrow<py::tuple>(entry);
    py::object key = both[0], value = both[1];
    check.entries.push_back({key, Value::of(key.ptr(), mortality_), Value::of(value.ptr(), mortality_)});
  }
  check.number = check.entries.size();
  return add(std::move(check));
}

ptrdiff_t PythonGuards::add_length(ptrdiff_t owner, ptrdiff_t parent, std::string path, py::object container,
                                   uint64_t length) {
  Check check{Check::kLength, owner, parent, std::move(path), container.ptr()};
  check.number = length;
  return add(std::move(check));
}

ptrdiff_t PythonGuards::add_type(ptrdiff_t owner, ptrdiff_t parent, std::string path, py::object type,
                                 uint64_t version) {
  Check check{Check::kType, owner, parent, std::move(path), type.ptr()};
  check.number = version;
  return add(std::move(check));
}

ptrdiff_t PythonGuards::add_class_attributes(ptrdiff_t owner, ptrdiff_t parent, std::string path, py::object object) {
  auto* type = as_type(object.ptr());
  Check order{Check::kFields, owner, parent, path};
  order.add_field(&type->tp_mro, path + ".__mro__", type->tp_mro, mortality_);
  ptrdiff_t number = add(std::move(order));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type->tp_mro); i++) {
    auto* base = as_type(PyTuple_GET_ITEM(type->tp_mro, i));
    if ((base->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) != 0 || base->tp_dict == nullptr) continue;
    Check check{Check::kDict, owner, number, path, base->tp_dict};
    for_each_item(base->tp_dict, [&](PyObject* key, PyObject* value) {
      auto name = py::reinterpret_borrow<py::object>(key);
      check.entries.push_back({name, Value::of(key, mortality_), Value::of(value, mortality_)});
    });
    check.number = check.entries.size();
    add(std::move(check));
  }
  return number;
}

ptrdiff_t PythonGuards::add_class(ptrdiff_t owner, ptrdiff_t parent, std::string path, py::object object,
                                  const py::object& type, const py::object& dict) {
  Check check{Check::kFields, owner, parent, path};
  check.add_field(reinterpret_cast<PyObject**>(&object.ptr()->ob_type), path + ".__class__", type.ptr(), mortality_);
  PyObject** field = dict.is_none() ? nullptr : _PyObject_GetDictPtr(object.ptr());
  if (field != nullptr) {
    check.add_field(field, path + ".__dict__", dict.ptr(), mortality_);
    check.is_dict_field = true;
  }
  return add(std::move(check));
}

ptrdiff_t PythonGuards::add_function(ptrdiff_t owner, ptrdiff_t parent, std::string path, py::object object,
                                     const py::object& code, const py::object& defaults, const py::object& keywords) {
  auto* function = reinterpret_cast<PyFunctionObject*>(object.ptr());
  Check check{Check::kFields, owner, parent, path};
  check.add_field(&function->func_code, path + ".__code__", code.ptr(), mortality_);
  check.add_field(&function->func_defaults, path + ".__defaults__", unless_none(defaults), mortality_);
  check.add_field(&function->func_kwdefaults, path + ".__kwdefaults__", unless_none(keywords), mortality_);
  return add(std::move(check));
}

ptrdiff_t PythonGuards::add_function_attribute(ptrdiff_t owner, ptrdiff_t parent, std::string path, py::object object,
                                               const std::string& name, const py::object& value) {
  auto* function = reinterpret_cast<PyFunctionObject*>(object.ptr());
  PyObject** field = name == "__name__"          ? &function->func_name
                     : name == "__qualname__"    ? &function->func_qualname
                     : name == "__doc__"         ? &function->func_doc
                     : name == "__module__"      ? &function->func_module
                     : name == "__annotations__" ? &function->func_annotations
                                                 : nullptr;
  if (field == nullptr) return -1;
  Check check{Check::kFields, owner, parent, path};
  check.add_field(field, path, *field == nullptr && value.is_none() ? nullptr : value.ptr(), mortality_);
  return add(std::move(check));
}

ptrdiff_t PythonGuards::add_cell(ptrdiff_t owner, ptrdiff_t parent, std::string path, py::object cell,
                                 const py::object& value, const py::object& absent) {
  Check check{Check::kFields, owner, parent, path};
  check.add_field(&reinterpret_cast<PyCellObject*>(cell.ptr())->ob_ref, path, unless(value, absent), mortality_);
  return add(std::move(check));
}

ptrdiff_t PythonGuards::add_weakref(ptrdiff_t owner, ptrdiff_t parent, std::string path, py::object reference) {
  auto* weak = reinterpret_cast<PyWeakReference*>(reference.ptr());
  Check check{Check::kFields, owner, parent, path};
  check.add_field(&weak->wr_object, path + "()", weak->wr_object, mortality_);
  return add(std::move(check));
}

ptrdiff_t PythonGuards::add_member(ptrdiff_t owner, ptrdiff_t parent, std::string path, py::object object,
                                   py::object descriptor, const py::object& value, const py::object& absent) {
  if (!Py_IS_TYPE(descriptor.ptr(), &PyMemberDescr_Type)) return -1;
  auto* described = reinterpret_cast<PyMemberDescrObject*>(descriptor.ptr());
  const PyMemberDef* member = described->d_member;
  bool is_object = member->type == T_OBJECT_EX || member->type == T_OBJECT;
  if (!PyObject_TypeCheck(object.ptr(), PyDescr_TYPE(described)) || !is_object) return -1;
  auto* field = reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object.ptr()) + member->offset);
  Check check{Check::kFields, owner, parent, path};
  bool is_none = member->type == T_OBJECT && value.is_none() && *field == nullptr;
  check.add_field(field, path, is_none ? nullptr : unless(value, absent), mortality_);
  return add(std::move(check));
}

ptrdiff_t PythonGuards::add_tensor(ptrdiff_t owner, ptrdiff_t, std::string path, py::object tensor, uint32_t mask,
                                   const TensorState& was) {
  const auto& variable = THPVariable_Unpack(tensor.ptr());
  tensors_.push_back({owner, std::move(path), variable.unsafeGetTensorImpl(), tensor.ptr(), mask, was});
  return -1;
}

ptrdiff_t PythonGuards::add_ask(std::string path, py::object function, py::tuple args, py::object expected) {
  asks_.push_back({std::move(path), std::move(function), std::move(args), Value::of(expected.ptr(), mortality_)});
  return -1;
}

// A tensor may have got a gradient meanwhile: then the next call finds it in another state, and is recorded anew.
bool PythonGuards::seal() {
  written_ = false;
  bool held = hold_but_for_tensors();
  times_held_ = 0;
  return held;
}

bool PythonGuards::is_gone(ptrdiff_t owner) const {
  return owner >= 0 && PyWeakref_GET_OBJECT(owners_[static_cast<size_t>(owner)].reference.ptr()) == Py_None;
}

void PythonGuards::write_all_words() {
  words_.clear();
  word_checks_.clear();
  wordless_.clear();
  for (size_t i = 0; i < checks_.size(); i++) {
    checks_[i].first_word = words_.size();
    checks_[i].locate();
    checks_[i].write_words(words_);
    word_checks_.resize(words_.size(), static_cast<uint32_t>(i));
    if (!checks_[i].has_all_words()) wordless_.push_back(static_cast<uint32_t>(i));
  }
  written_ = true;
}

bool PythonGuards::hold_by_checks() {
  for (auto& check : checks_) {
    if (is_gone(check.owner) || !check.holds(true, now_)) return false;
  }
  for (const auto& tensor : tensors_) {
    if (is_gone(tensor.owner)) return false;
  }
  mortality_.forget();
  write_all_words();
  return true;
}

// The index of the first word from there on that has changed; the number of words if there is none.
__attribute__((noinline)) size_t PythonGuards::first_changed(size_t from) const {
  const Word* at = words_.data() + from;
  const Word* const end = words_.data() + words_.size();
  while (at != end && *at->at == at->was) at++;
  return static_cast<size_t>(at - words_.data());
}

bool PythonGuards::words_hold() {
  const size_t count = words_.size();
  for (size_t i = first_changed(0); i < count; i = first_changed(i)) {
    Check& check = checks_[word_checks_[i]];
    if (!check.holds(false, now_)) return false;
    // As good as before: its words of today are the ones to compare with from now on.
    check.locate();
    fresh_.clear();
    check.write_words(fresh_);
    size_t end = check.first_word + fresh_.size();
    if (end > count || word_checks_[end - 1] != word_checks_[i] ||
        (end < count && word_checks_[end] == word_checks_[i])) {
      return hold_by_checks();
    }
    std::copy(fresh_.begin(), fresh_.end(), words_.begin() + static_cast<ptrdiff_t>(check.first_word));
    i = end;
  }
  for (uint32_t i : wordless_) {
    if (!checks_[i].holds(false, now_)) return false;
  }
  return true;
}

bool PythonGuards::tensors_hold() const {
  for (const auto& one : tensors_) {
    // torch.utils.swap_tensors() gives a tensor of Python another one of C++.
    if (THPVariable_Unpack(one.object).unsafeGetTensorImpl() != one.tensor) return false;
    if (!one.was.is(*one.tensor, one.object, one.mask)) return false;
  }
  return true;
}

bool PythonGuards::asks_hold() {
  for (const auto& ask : asks_) {
    PyObject* now = PyObject_Call(ask.function.ptr(), ask.args.ptr(), nullptr);
    if (now == nullptr) {
      PyErr_Clear();
      return false;
    }
    bool same = ask.expected.is(now, true);
    Py_DECREF(now);
    if (!same) return false;
  }
  return true;
}

bool PythonGuards::hold() {
  bool good = !written_ || mortality_.died() ? hold_by_checks() : words_hold();
  if (!good || !tensors_hold() || !asks_hold()) return false;
  times_held_++;
  return true;
}

std::vector<Difference> PythonGuards::differences() {
  std::vector<Difference> all;
  std::vector<bool> failed(checks_.size(), false);
  for (size_t i = 0; i < checks_.size(); i++) {
    Check& check = checks_[i];
    if (is_gone(check.owner)) {
      failed[i] = true;
      Difference gone{owners_[static_cast<size_t>(check.owner)].label, py::make_tuple("freed object"), py::tuple()};
      bool told = std::any_of(all.begin(), all.end(), [&](const auto& one) { return one.path == gone.path; });
      if (!told) all.push_back(std::move(gone));
    } else if (check.parent >= 0 && failed[static_cast<size_t>(check.parent)]) {
      failed[i] = true;
    } else if (!check.holds(true, now_)) {
      failed[i] = true;
      check.add_differences(all, now_);
    }
  }
  if (!all.empty()) return all;  // tensors and functions can be read safely only if their holders are as they were
  for (const auto& one : tensors_) {
    if (is_gone(one.owner)) {
      all.push_back({one.path, py::make_tuple("freed object"), py::tuple()});
    } else if (THPVariable_Unpack(one.object).unsafeGetTensorImpl() != one.tensor ||
               !one.was.is(*one.tensor, one.object, one.mask)) {
      all.push_back({one.path, py::make_tuple("tensor"), py::make_tuple("tensor with another state")});
    }
  }
  for (auto& ask : asks_) {
    auto now = py::reinterpret_steal<py::object>(PyObject_Call(ask.function.ptr(), ask.args.ptr(), nullptr));
    if (!now) PyErr_Clear();
    if (!ask.expected.is(now.ptr(), true)) all.push_back({ask.path, ask.expected.shown(), shown(now.ptr())});
  }
  return all;
}

std::vector<std::string> PythonGuards::paths() const {
  std::vector<std::string> all;
  for (const auto& check : checks_) check.add_paths(all);
  for (const auto& ask : asks_) all.push_back(ask.path);
  return all;
}

PyObject* instance_dict(PyObject* object) {
  if (PyType_Check(object) || _PyObject_GetDictPtr(object) == nullptr) return nullptr;
  PyObject* dict = PyObject_GenericGetDict(object, nullptr);
  if (dict == nullptr) PyErr_Clear();
  return dict;
}

}  // namespace torchreel::graphs
