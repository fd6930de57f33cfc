#include "watch.h"

#include <structmember.h>

#include <algorithm>
#include <string_view>

#if PY_VERSION_HEX < 0x030b0000 || PY_VERSION_HEX >= 0x030c0000
#error "The watch reads versions of dicts and places in objects as CPython 3.11 has them."
#endif

namespace py = pybind11;

namespace torchreel::graphs {

namespace {

// A longer list is compared at each replay by its length alone; a dict is not, as one word tells whether it changed.
constexpr Py_ssize_t kLongList = 64;
constexpr Py_ssize_t kLongDict = 4096;
constexpr int kDepth = 4;  // optimizer.param_groups[0]["params"][0]

// What torch's modules and optimizers hold their tensors in is never too long.
bool is_never_too_long(std::string_view path) {
  for (std::string_view name : {"._parameters", "._buffers", "._modules", ".param_groups", "['params']"}) {
    if (path.ends_with(name)) return true;
  }
  return false;
}

Py_ssize_t size_of(PyObject* container) {
  if (PyList_Check(container)) return PyList_GET_SIZE(container);
  if (PyDict_Check(container)) return PyDict_GET_SIZE(container);
  return PySet_GET_SIZE(container);
}

PyDictObject* as_dict(PyObject* object) { return reinterpret_cast<PyDictObject*>(object); }

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
  PyObject* found = _PyDict_GetItem_KnownHash(dict, name, PyObject_Hash(name));  // strings know their hash
  if (found == nullptr && PyErr_Occurred()) PyErr_Clear();
  return found;
}

// Only of plain keys: nothing of a user's is asked how it looks.
std::string item_path(const std::string& path, const Value& key, size_t place) {
  if (key.kind != Value::kPlain) return path + "[" + std::to_string(place) + "]";
  return path + "[" + std::string(py::repr(key.keep)) + "]";
}

}  // namespace

void Watch::clear() {
  owners_.clear();
  checks_.clear();
  words_.clear();
  word_checks_.clear();
  too_long_.clear();
  mortality_.forget();
  times_same_ = 0;
  written_ = false;
}

size_t Watch::add_owner(py::object object, std::string label, bool mortal) {
  auto reference = mortality_.reference(object.ptr());
  if (!reference) reference = object;
  owners_.push_back({std::move(label), std::move(reference), object.ptr(), mortal});
  return owners_.size() - 1;
}

void Watch::add(Check check, int depth) {
  written_ = false;
  checks_.push_back(std::move(check));
  auto place = static_cast<ptrdiff_t>(checks_.size() - 1);
  if (depth == 0) return;
  // What is in it comes after it. A copy: the list of checks grows.
  std::vector<std::pair<std::string, PyObject*>> inner;
  const Check& added = checks_.back();
  for (size_t i = 0; i < added.entries.size(); i++) {
    const Value& value = added.entries[i].value;
    auto path = entry_path(added, added.entries[i], i);
    if (value.kind == Value::kAddress && is_container(value.object)) inner.emplace_back(path, value.object);
    for (size_t k = 0; k < value.items.size(); k++) {
      PyObject* item = value.items[k].object;
      if (is_container(item)) inner.emplace_back(path + "[" + std::to_string(k) + "]", item);
    }
  }
  size_t owner = added.owner;
  for (auto& [path, object] : inner) add_container(owner, place, path, object, depth - 1);
}

void Watch::add_container(size_t owner, ptrdiff_t parent, const std::string& path, PyObject* object, int depth) {
  Kind kind = PyList_Check(object) ? kList : PyDict_Check(object) ? kItems : kSet;
  Check check{kind, owner, parent, path, object};
  check.size = size_of(object);
  check.contents = check.size <= (kind == kItems ? kLongDict : kLongList) || is_never_too_long(path);
  if (check.contents) {
    for_each_item(object, [&](PyObject* key, PyObject* value) {
      check.entries.push_back({{}, Value::of(key, mortality_), Value::of(value, mortality_)});
    });
  } else {
    too_long_.push_back(path);
  }
  add(std::move(check), depth);
}

void Watch::add_field(size_t owner, PyObject** field, std::string path) {
  Check check{kField, owner, -1, std::move(path)};
  check.field = field;
  check.entries.push_back({{}, {}, Value::of(*field, mortality_)});
  add(std::move(check), kDepth);
}

void Watch::add_dict(size_t owner, ptrdiff_t parent, PyObject* dict, const std::vector<py::str>& names) {
  Check check{kNames, owner, parent, owners_[owner].label, dict};
  for (const auto& name : names) {
    check.entries.push_back({name, {}, Value::of(looked_up(dict, name.ptr()), mortality_)});
  }
  add(std::move(check), kDepth);
}

void Watch::add_names(size_t owner, py::dict dict, const std::vector<py::str>& names) {
  add_dict(owner, -1, dict.ptr(), names);
}

void Watch::add_instance(size_t owner, py::object object, const std::vector<py::str>& names) {
  const std::string& label = owners_[owner].label;
  add_field(owner, reinterpret_cast<PyObject**>(&object.ptr()->ob_type), label + ".__class__");
  py::object dict = py::reinterpret_steal<py::object>(instance_dict(object.ptr()));
  if (!dict) return;
  // The dict itself may be exchanged: its place is watched, and not by add_field(), which would look at all in it.
  Check place{kField, owner, -1, label + ".__dict__"};
  place.field = _PyObject_GetDictPtr(object.ptr());
  place.is_dict_place = true;
  place.entries.push_back({{}, {}, Value::of(dict.ptr(), mortality_)});
  add(std::move(place), 0);
  add_dict(owner, static_cast<ptrdiff_t>(checks_.size() - 1), dict.ptr(), names);
}

void Watch::add_class(size_t owner, py::object type, const std::vector<py::str>& names) {
  PyObject* dict = reinterpret_cast<PyTypeObject*>(type.ptr())->tp_dict;
  if (dict != nullptr) add_dict(owner, -1, dict, names);
}

void Watch::add_function(size_t owner, py::object object) {
  auto* function = reinterpret_cast<PyFunctionObject*>(object.ptr());
  const std::string label = owners_[owner].label;
  add_field(owner, &function->func_code, label + ".__code__");
  add_field(owner, &function->func_defaults, label + ".__defaults__");
  add_field(owner, &function->func_kwdefaults, label + ".__kwdefaults__");
}

void Watch::add_cell(size_t owner, py::object cell, std::string name) {
  add_field(owner, &reinterpret_cast<PyCellObject*>(cell.ptr())->ob_ref, std::move(name));
}

bool Watch::add_member(size_t owner, py::object object, py::object descriptor, const std::string& name) {
  if (!Py_IS_TYPE(descriptor.ptr(), &PyMemberDescr_Type)) return false;
  auto* described = reinterpret_cast<PyMemberDescrObject*>(descriptor.ptr());
  const PyMemberDef* member = described->d_member;
  if (!PyObject_TypeCheck(object.ptr(), PyDescr_TYPE(described)) || member->type != T_OBJECT_EX) return false;
  auto* field = reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object.ptr()) + member->offset);
  add_field(owner, field, owners_[owner].label + "." + name);
  return true;
}

bool Watch::is_gone(Owner& owner) {
  if (!owner.gone && PyWeakref_Check(owner.reference.ptr())) {
    owner.gone = PyWeakref_GET_OBJECT(owner.reference.ptr()) == Py_None;
  }
  return owner.gone;
}

std::string Watch::entry_path(const Check& check, const Entry& entry, size_t place) const {
  if (check.kind == kField || check.kind == kSet) return check.path;
  if (check.kind != kNames) return item_path(check.path, entry.key, place);
  std::string name = py::str(entry.name);
  return check.path.empty() ? name : check.path + "." + name;
}

// Fills now_ with what the entries' values are at present; false where there are more or fewer.
bool Watch::read(const Check& check, bool strict) {
  now_.clear();
  if (check.kind == kField) {
    now_.push_back(*check.field);
    return true;
  }
  if (check.kind == kNames) {
    const bool fit = check.places.fit(check.object);
    for (size_t i = 0; i < check.entries.size(); i++) {
      PyObject* now = fit ? check.places.at(i) : nullptr;
      now_.push_back(now != nullptr ? now : looked_up(check.object, check.entries[i].name.ptr()));
    }
    return true;
  }
  if (size_of(check.object) != check.size) return false;
  if (!check.contents) return true;
  bool keys = true;
  for_each_item(check.object, [&](PyObject* key, PyObject* value) {
    keys = keys && check.entries[now_.size()].key.is(key, strict);
    now_.push_back(value);
  });
  return keys;
}

bool Watch::holds(Check& check, bool strict) {
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
void Watch::locate(Check& check) {
  if (check.kind != kNames || check.places.fit(check.object)) return;
  std::vector<PyObject*> names;
  for (const auto& entry : check.entries) names.push_back(entry.name.ptr());
  check.places.find(check.object, names);
}

void Watch::write_value_words(const Value& value, std::vector<Word>& words) const {
  if (value.kind != Value::kTuple && value.kind != Value::kAddress) return;
  // Another object may be at its address; then it is told by its type and by what is in it.
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

void Watch::write_words(const Check& check, std::vector<Word>& words) const {
  if (check.kind == kField) {
    words.push_back(word(check.field, *check.field));
    if (!check.is_dict_place) write_value_words(check.entries[0].value, words);
  } else if (check.kind == kNames || check.kind == kItems) {
    auto* dict = as_dict(check.object);
    if (check.contents) {
      words.push_back(word(&dict->ma_version_tag, dict->ma_version_tag));
    } else {
      words.push_back(word(&dict->ma_used, dict->ma_used));
    }
  } else if (check.kind == kList) {
    auto* list = reinterpret_cast<PyListObject*>(check.object);
    words.push_back(word(&list->ob_base.ob_size, list->ob_base.ob_size));
    if (!check.contents) return;
    words.push_back(word(&list->ob_item, list->ob_item));
    for (size_t i = 0; i < check.entries.size(); i++) {
      words.push_back(word(&list->ob_item[i], list->ob_item[i]));
      write_value_words(check.entries[i].value, words);
    }
  } else {
    auto* set = reinterpret_cast<PySetObject*>(check.object);
    words.push_back(word(&set->used, set->used));
    if (!check.contents) return;
    words.push_back(word(&set->mask, set->mask));
    words.push_back(word(&set->table, set->table));
    for (Py_ssize_t i = 0; i <= set->mask; i++) words.push_back(word(&set->table[i].key, set->table[i].key));
  }
}

void Watch::write_all_words() {
  words_.clear();
  word_checks_.clear();
  for (size_t i = 0; i < checks_.size(); i++) {
    checks_[i].first_word = words_.size();
    if (owners_[checks_[i].owner].gone) continue;
    locate(checks_[i]);
    write_words(checks_[i], words_);
    word_checks_.resize(words_.size(), static_cast<uint32_t>(i));
  }
  written_ = true;
}

bool Watch::same_by_checks() {
  for (auto& check : checks_) {
    Owner& owner = owners_[check.owner];
    if (is_gone(owner) ? !owner.mortal : !holds(check, true)) return false;
  }
  mortality_.forget();
  write_all_words();
  times_same_++;
  return true;
}

// The number of the first word from there on that is another one; the count of words if there is none.
__attribute__((noinline)) size_t Watch::first_changed(size_t from) const {
  const Word* at = words_.data() + from;
  const Word* const end = words_.data() + words_.size();
  while (at != end && *at->at == at->was) at++;
  return static_cast<size_t>(at - words_.data());
}

bool Watch::same() {
  if (!written_ || mortality_.died()) return same_by_checks();
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
      return same_by_checks();
    }
    std::copy(fresh_.begin(), fresh_.end(), words_.begin() + static_cast<ptrdiff_t>(check.first_word));
    i = end;
  }
  times_same_++;
  return true;
}

std::vector<Difference> Watch::differences() {
  std::vector<Difference> all;
  std::vector<bool> failed(checks_.size(), false);
  std::vector<bool> told(owners_.size(), false);
  for (size_t i = 0; i < checks_.size(); i++) {
    Check& check = checks_[i];
    Owner& owner = owners_[check.owner];
    if (is_gone(owner)) {
      failed[i] = true;
      if (!owner.mortal && !told[check.owner])
        all.push_back({owner.label, py::make_tuple("freed object"), py::tuple()});
      told[check.owner] = true;
    } else if (check.parent >= 0 && failed[static_cast<size_t>(check.parent)]) {
      failed[i] = true;
    } else if (!holds(check, true)) {
      failed[i] = true;
      tell(check, all);
    }
  }
  return all;
}

void Watch::tell(const Check& check, std::vector<Difference>& all) {
  if (!read(check, true)) {
    Py_ssize_t now = size_of(check.object);
    if (now != check.size) {
      all.push_back({"len(" + check.path + ")", shown(py::int_(check.size).ptr()), shown(py::int_(now).ptr())});
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

std::vector<std::string> Watch::paths() const {
  std::vector<std::string> all;
  for (const auto& check : checks_) {
    if (check.kind == kSet || (check.kind != kNames && !check.contents)) all.push_back("len(" + check.path + ")");
    for (size_t i = 0; i < check.entries.size() && check.kind != kSet; i++) {
      all.push_back(entry_path(check, check.entries[i], i));
    }
  }
  return all;
}

PyObject* instance_dict(PyObject* object) {
  if (PyType_Check(object) || _PyObject_GetDictPtr(object) == nullptr) return nullptr;
  PyObject* dict = PyObject_GenericGetDict(object, nullptr);
  if (dict == nullptr) PyErr_Clear();
  return dict;
}

}  // namespace torchreel::graphs
