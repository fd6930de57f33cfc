#include "graphs/guards/python_guards.h"

#include <structmember.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>

namespace py = pybind11;

namespace torchreel::graphs {

namespace {

Py_ssize_t size_of(PyObject* container) {
  if (PyList_Check(container) || PyTuple_Check(container)) return Py_SIZE(container);
  if (PyDict_Check(container)) return PyDict_GET_SIZE(container);
  return PySet_GET_SIZE(container);
}

// Where the length of a container is.
const Py_ssize_t* length_of(PyObject* container) {
  if (PyList_Check(container) || PyTuple_Check(container)) return &reinterpret_cast<PyVarObject*>(container)->ob_size;
  if (PyDict_Check(container)) return &reinterpret_cast<PyDictObject*>(container)->ma_used;
  return &reinterpret_cast<PySetObject*>(container)->used;
}

// Calls take(key, value) for each item; a list and a set have no keys. The container must not change meanwhile.
template <typename Take>
void for_each_item(PyObject* container, Take take) {
  Py_ssize_t at = 0;
  PyObject *key, *value;
  Py_hash_t hash;
  if (PyList_Check(container)) {
    while (at < PyList_GET_SIZE(container)) take(nullptr, PyList_GET_ITEM(container, at++));
  } else if (PyDict_Check(container)) {
    while (PyDict_Next(container, &at, &key, &value)) take(key, value);
  } else {
    while (_PySet_NextEntry(container, &at, &value, &hash)) take(nullptr, value);
  }
}

PyObject* looked_up(PyObject* dict, PyObject* name) {
  Py_hash_t hash = PyObject_Hash(name);
  PyObject* found = hash == -1 ? nullptr : _PyDict_GetItem_KnownHash(dict, name, hash);
  if (found == nullptr && PyErr_Occurred()) PyErr_Clear();
  return found;
}

// Only of plain keys: nothing of a user's is asked how it looks.
std::string item_path(const std::string& path, const Value& key, size_t index) {
  if (key.kind != Value::kPlain) return path + "[" + std::to_string(index) + "]";
  return path + "[" + std::string(py::repr(key.keep)) + "]";
}

PyObject* unless(const py::object& value, const py::object& absent) { return value.is(absent) ? nullptr : value.ptr(); }

PyObject* unless_none(const py::object& value) { return value.is_none() ? nullptr : value.ptr(); }

PyTypeObject* as_type(PyObject* type) { return reinterpret_cast<PyTypeObject*>(type); }

uint64_t version_now(PyObject* type) {
  return (as_type(type)->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG) != 0 ? as_type(type)->tp_version_tag : 0;
}

}  // namespace

uint64_t type_version(PyObject* type) {
  static PyObject* name = PyUnicode_InternFromString("__doc__");
  _PyType_Lookup(as_type(type), name);  // gives the type a version if it has none
  return version_now(type);
}

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

PythonGuards::Check PythonGuards::fields(ptrdiff_t owner, ptrdiff_t parent, std::string path) {
  return {kFields, owner, parent, std::move(path)};
}

void PythonGuards::add_field(Check& check, PyObject** field, std::string label, PyObject* was) {
  check.fields.push_back(field);
  check.labels.push_back(std::move(label));
  check.entries.push_back({{}, {}, Value::of(was, mortality_)});
}

ptrdiff_t PythonGuards::add_entries(ptrdiff_t owner, ptrdiff_t parent, std::string path, py::object dict,
                                    const py::list& entries, const py::object& absent) {
  Check check{kEntries, owner, parent, std::move(path), dict.ptr()};
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
  Kind kind = PyList_Check(object)                                  ? kList
              : PyAnySet_Check(object)                              ? kSet
              : PyDict_CheckExact(object) || !PyODict_Check(object) ? kDict
                                                                    : kOrdered;
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
  Check check{kLength, owner, parent, std::move(path), container.ptr()};
  check.number = length;
  return add(std::move(check));
}

ptrdiff_t PythonGuards::add_type(ptrdiff_t owner, ptrdiff_t parent, std::string path, py::object type,
                                 uint64_t version) {
  Check check{kType, owner, parent, std::move(path), type.ptr()};
  check.number = version;
  return add(std::move(check));
}

ptrdiff_t PythonGuards::add_class_attributes(ptrdiff_t owner, ptrdiff_t parent, std::string path, py::object object) {
  auto* type = as_type(object.ptr());
  Check order = fields(owner, parent, path);
  add_field(order, &type->tp_mro, path + ".__mro__", type->tp_mro);
  ptrdiff_t number = add(std::move(order));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type->tp_mro); i++) {
    auto* base = as_type(PyTuple_GET_ITEM(type->tp_mro, i));
    if ((base->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) != 0 || base->tp_dict == nullptr) continue;
    Check check{kDict, owner, number, path, base->tp_dict};
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
  Check check = fields(owner, parent, path);
  add_field(check, reinterpret_cast<PyObject**>(&object.ptr()->ob_type), path + ".__class__", type.ptr());
  PyObject** field = dict.is_none() ? nullptr : _PyObject_GetDictPtr(object.ptr());
  if (field != nullptr) {
    add_field(check, field, path + ".__dict__", dict.ptr());
    check.is_dict_field = true;
  }
  return add(std::move(check));
}

ptrdiff_t PythonGuards::add_function(ptrdiff_t owner, ptrdiff_t parent, std::string path, py::object object,
                                     const py::object& code, const py::object& defaults, const py::object& keywords) {
  auto* function = reinterpret_cast<PyFunctionObject*>(object.ptr());
  Check check = fields(owner, parent, path);
  add_field(check, &function->func_code, path + ".__code__", code.ptr());
  add_field(check, &function->func_defaults, path + ".__defaults__", unless_none(defaults));
  add_field(check, &function->func_kwdefaults, path + ".__kwdefaults__", unless_none(keywords));
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
  Check check = fields(owner, parent, path);
  add_field(check, field, path, *field == nullptr && value.is_none() ? nullptr : value.ptr());
  return add(std::move(check));
}

ptrdiff_t PythonGuards::add_cell(ptrdiff_t owner, ptrdiff_t parent, std::string path, py::object cell,
                                 const py::object& value, const py::object& absent) {
  Check check = fields(owner, parent, path);
  add_field(check, &reinterpret_cast<PyCellObject*>(cell.ptr())->ob_ref, path, unless(value, absent));
  return add(std::move(check));
}

ptrdiff_t PythonGuards::add_weakref(ptrdiff_t owner, ptrdiff_t parent, std::string path, py::object reference) {
  auto* weak = reinterpret_cast<PyWeakReference*>(reference.ptr());
  Check check = fields(owner, parent, path);
  add_field(check, &weak->wr_object, path + "()", weak->wr_object);
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
  Check check = fields(owner, parent, path);
  bool is_none = member->type == T_OBJECT && value.is_none() && *field == nullptr;
  add_field(check, field, path, is_none ? nullptr : unless(value, absent));
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

// A tensor may have got a gradient meanwhile: then the next call finds it in another state, and is another recording.
bool PythonGuards::seal() {
  written_ = false;
  bool held = hold_but_for_tensors();
  times_held_ = 0;
  return held;
}

bool PythonGuards::is_gone(ptrdiff_t owner) const {
  return owner >= 0 && PyWeakref_GET_OBJECT(owners_[static_cast<size_t>(owner)].reference.ptr()) == Py_None;
}

std::string PythonGuards::entry_path(const Check& check, const Entry& entry, size_t index) const {
  if (check.kind == kFields) return check.labels[index];
  if (check.kind == kSet) return check.path;
  if (check.kind == kEntries && PyUnicode_CheckExact(entry.name.ptr()) && !check.path.ends_with("{}")) {
    std::string name = py::str(entry.name);
    return check.path.empty() ? name : check.path + "." + name;
  }
  std::string path = check.path.ends_with("{}") ? check.path.substr(0, check.path.size() - 2) : check.path;
  return item_path(path, entry.key, index);
}

// Fills now_ with what the entries' values are at present; false where there are more or fewer.
bool PythonGuards::read(const Check& check, bool strict) {
  now_.clear();
  switch (check.kind) {
    case kFields:
      for (PyObject** field : check.fields) now_.push_back(*field);
      return true;
    case kLength: return static_cast<uint64_t>(size_of(check.object)) == check.number;
    case kType: return check.number != 0 && version_now(check.object) == check.number;
    case kEntries: {
      const bool fit = check.slots.fit(check.object);
      for (size_t i = 0; i < check.entries.size(); i++) {
        PyObject* now = fit ? check.slots.at(i) : nullptr;
        now_.push_back(now != nullptr ? now : looked_up(check.object, check.entries[i].name.ptr()));
      }
      return true;
    }
    default: break;
  }
  if (static_cast<uint64_t>(size_of(check.object)) != check.number) return false;
  if (check.kind == kOrdered) {
    py::object keys = py::reinterpret_steal<py::object>(PySequence_List(check.object));
    if (!keys) {
      PyErr_Clear();
      return false;
    }
    for (size_t i = 0; i < check.entries.size(); i++) {
      if (!check.entries[i].key.is(PyList_GET_ITEM(keys.ptr(), static_cast<Py_ssize_t>(i)), strict)) return false;
      now_.push_back(looked_up(check.object, check.entries[i].name.ptr()));
    }
    return true;
  }
  bool keys = true;
  for_each_item(check.object, [&](PyObject* key, PyObject* value) {
    if (key != nullptr) keys = keys && check.entries[now_.size()].key.is(key, strict);
    now_.push_back(value);
  });
  return keys;
}

bool PythonGuards::holds(Check& check, bool strict) {
  if (!read(check, strict)) return false;
  for (size_t i = 0; i < now_.size(); i++) {
    const Value& value = check.entries[i].value;
    if (!strict && value.is_at_once(now_[i])) continue;
    if (!value.is(now_[i], strict)) return false;
  }
  for (size_t i = 0; i < now_.size(); i++) {
    if (check.entries[i].value.object != now_[i]) check.entries[i].value.adopt(now_[i]);
  }
  return true;
}

// The globals of a script change with each turn of its loop: then the few names are read where they are.
void PythonGuards::locate(Check& check) {
  if (check.kind != kEntries || check.slots.fit(check.object)) return;
  std::vector<PyObject*> names;
  for (const auto& entry : check.entries) names.push_back(entry.name.ptr());
  check.slots.find(check.object, names);
}

void PythonGuards::write_value_words(const Value& value, std::vector<Word>& words) const {
  if (value.kind != Value::kTuple && value.kind != Value::kAddress) return;
  // Another object may be at its address; then it is told by its type, and what was read of it by its own checks.
  auto* object = reinterpret_cast<PyVarObject*>(value.object);
  words.push_back(word(&object->ob_base.ob_type, object->ob_base.ob_type));
  if (value.kind != Value::kTuple) return;
  words.push_back(word(&object->ob_size, object->ob_size));
  PyObject** items = reinterpret_cast<PyTupleObject*>(object)->ob_item;
  for (size_t i = 0; i < value.items.size(); i++) {
    words.push_back(word(&items[i], items[i]));
    write_value_words(value.items[i], words);
  }
}

void PythonGuards::write_words(const Check& check, std::vector<Word>& words) const {
  switch (check.kind) {
    case kFields:
      for (size_t i = 0; i < check.fields.size(); i++) {
        words.push_back(word(check.fields[i], *check.fields[i]));
        if (i + 1 < check.fields.size() || !check.is_dict_field) write_value_words(check.entries[i].value, words);
      }
      return;
    case kEntries:
    case kDict:
    case kOrdered: {
      const uint64_t* version = dict_version(check.object);
      words.push_back({version, *version});
      return;
    }
    case kLength: {
      const Py_ssize_t* length = length_of(check.object);
      words.push_back({reinterpret_cast<const uint64_t*>(length), static_cast<uint64_t>(*length)});
      return;
    }
    case kType: {
      // Zero from a change on, and then a number that no type has had. What follows it in its word is padding.
      const auto* version = reinterpret_cast<const uint64_t*>(&as_type(check.object)->tp_version_tag);
      words.push_back({version, *version});
      return;
    }
    case kList: {
      auto* list = reinterpret_cast<PyListObject*>(check.object);
      words.push_back(word(&list->ob_base.ob_size, list->ob_base.ob_size));
      words.push_back(word(&list->ob_item, list->ob_item));
      for (size_t i = 0; i < check.entries.size(); i++) {
        words.push_back(word(&list->ob_item[i], list->ob_item[i]));
        write_value_words(check.entries[i].value, words);
      }
      return;
    }
    case kSet: {
      auto* set = reinterpret_cast<PySetObject*>(check.object);
      words.push_back(word(&set->used, set->used));
      words.push_back(word(&set->mask, set->mask));
      words.push_back(word(&set->table, set->table));
      for (Py_ssize_t i = 0; i <= set->mask; i++) words.push_back(word(&set->table[i].key, set->table[i].key));
    }
  }
}

void PythonGuards::write_all_words() {
  words_.clear();
  word_checks_.clear();
  wordless_.clear();
  for (size_t i = 0; i < checks_.size(); i++) {
    checks_[i].first_word = words_.size();
    locate(checks_[i]);
    write_words(checks_[i], words_);
    word_checks_.resize(words_.size(), static_cast<uint32_t>(i));
    bool ordered = checks_[i].kind == kOrdered && checks_[i].number > 1;  // move_to_end() leaves the version as it is
    if (ordered) wordless_.push_back(static_cast<uint32_t>(i));
  }
  written_ = true;
}

bool PythonGuards::hold_by_checks() {
  for (auto& check : checks_) {
    if (is_gone(check.owner) || !holds(check, true)) return false;
  }
  for (const auto& tensor : tensors_) {
    if (is_gone(tensor.owner)) return false;
  }
  mortality_.forget();
  write_all_words();
  return true;
}

// The number of the first word from there on that is another one; the count of words if there is none.
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
    if (!holds(check, false)) return false;
    // As good as before: what it looks like now is what it looked like.
    locate(check);
    fresh_.clear();
    write_words(check, fresh_);
    size_t end = check.first_word + fresh_.size();
    if (end > count || word_checks_[end - 1] != word_checks_[i] ||
        (end < count && word_checks_[end] == word_checks_[i])) {
      return hold_by_checks();
    }
    std::copy(fresh_.begin(), fresh_.end(), words_.begin() + static_cast<ptrdiff_t>(check.first_word));
    i = end;
  }
  for (uint32_t i : wordless_) {
    if (!holds(checks_[i], false)) return false;
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
    } else if (!holds(check, true)) {
      failed[i] = true;
      tell(check, all);
    }
  }
  if (!all.empty()) return all;  // what is below could not be read safely
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

void PythonGuards::tell(const Check& check, std::vector<Difference>& all) {
  if (check.kind == kType) {
    all.push_back({check.path, py::make_tuple("class"), py::make_tuple("class with other attributes")});
    return;
  }
  if (!read(check, true)) {
    auto now = static_cast<uint64_t>(size_of(check.object));
    if (now != check.number) {
      all.push_back({"len(" + check.path + ")", shown(py::int_(check.number).ptr()), shown(py::int_(now).ptr())});
      return;
    }
    all.push_back({check.path, py::make_tuple("keys"), py::make_tuple("keys")});
    return;
  }
  for (size_t i = 0; i < now_.size(); i++) {
    const Entry& entry = check.entries[i];
    if (entry.value.is(now_[i], true)) continue;
    all.push_back({entry_path(check, entry, i), entry.value.shown(), shown(now_[i])});
  }
}

std::vector<std::string> PythonGuards::paths() const {
  std::vector<std::string> all;
  for (const auto& check : checks_) {
    if (check.kind == kType) continue;  // of interest to nobody but the check
    if (check.kind == kSet || check.kind == kLength) all.push_back("len(" + check.path + ")");
    for (size_t i = 0; i < check.entries.size() && check.kind != kSet; i++) {
      all.push_back(entry_path(check, check.entries[i], i));
    }
  }
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
