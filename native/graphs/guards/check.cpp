#include "graphs/guards/check.h"

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

uint64_t version_now(PyObject* type) {
  return (as_type(type)->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG) != 0 ? as_type(type)->tp_version_tag : 0;
}

void write_value_words(const Value& value, std::vector<Word>& words) {
  if (value.kind != Value::kTuple && value.kind != Value::kAddress) return;
  // Another object may have its address by now. Its type is a word, and what was read of it has checks of its own.
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

}  // namespace

uint64_t type_version(PyObject* type) {
  static PyObject* name = PyUnicode_InternFromString("__doc__");
  _PyType_Lookup(as_type(type), name);  // gives the type a version if it has none
  return version_now(type);
}

void Check::add_field(PyObject** field, std::string label, PyObject* was, const Mortality& mortality) {
  fields.push_back(field);
  labels.push_back(std::move(label));
  entries.push_back({{}, {}, Value::of(was, mortality)});
}

std::string Check::entry_path(const Entry& entry, size_t index) const {
  if (kind == kFields) return labels[index];
  if (kind == kSet) return path;
  if (kind == kEntries && PyUnicode_CheckExact(entry.name.ptr()) && !path.ends_with("{}")) {
    std::string name = py::str(entry.name);
    return path.empty() ? name : path + "." + name;
  }
  std::string container = path.ends_with("{}") ? path.substr(0, path.size() - 2) : path;
  return item_path(container, entry.key, index);
}

void Check::read_entries(Objects& now) const {
  const bool fit = slots.fit(object);
  for (size_t i = 0; i < entries.size(); i++) {
    PyObject* found = fit ? slots.at(i) : nullptr;
    now.push_back(found != nullptr ? found : looked_up(object, entries[i].name.ptr()));
  }
}

// Of an OrderedDict, whose order is not that of its dict.
bool Check::read_ordered(bool strict, Objects& now) const {
  py::object keys = py::reinterpret_steal<py::object>(PySequence_List(object));
  if (!keys) {
    PyErr_Clear();
    return false;
  }
  for (size_t i = 0; i < entries.size(); i++) {
    if (!entries[i].key.is(PyList_GET_ITEM(keys.ptr(), static_cast<Py_ssize_t>(i)), strict)) return false;
    now.push_back(looked_up(object, entries[i].name.ptr()));
  }
  return true;
}

bool Check::read_items(bool strict, Objects& now) const {
  bool same_keys = true;
  for_each_item(object, [&](PyObject* key, PyObject* value) {
    if (key != nullptr) same_keys = same_keys && entries[now.size()].key.is(key, strict);
    now.push_back(value);
  });
  return same_keys;
}

// Fills `now` with the present values of the entries. False if there are more or fewer, or other keys.
bool Check::read(bool strict, Objects& now) const {
  now.clear();
  switch (kind) {
    case kFields:
      for (PyObject** field : fields) now.push_back(*field);
      return true;
    case kEntries: read_entries(now); return true;
    case kLength: return static_cast<uint64_t>(size_of(object)) == number;
    case kType: return number != 0 && version_now(object) == number;
    default: break;
  }
  if (static_cast<uint64_t>(size_of(object)) != number) return false;
  return kind == kOrdered ? read_ordered(strict, now) : read_items(strict, now);
}

bool Check::holds(bool strict, Objects& now) {
  if (!read(strict, now)) return false;
  for (size_t i = 0; i < now.size(); i++) {
    const Value& value = entries[i].value;
    if (!strict && value.is_at_once(now[i])) continue;
    if (!value.is(now[i], strict)) return false;
  }
  for (size_t i = 0; i < now.size(); i++) {
    if (entries[i].value.object != now[i]) entries[i].value.adopt(now[i]);
  }
  return true;
}

// The globals of a script change in each turn of its loop. The few names that count are then read from their slots.
void Check::locate() {
  if (kind != kEntries || slots.fit(object)) return;
  std::vector<PyObject*> names;
  for (const auto& entry : entries) names.push_back(entry.name.ptr());
  slots.find(object, names);
}

void Check::write_words(std::vector<Word>& words) const {
  switch (kind) {
    case kFields:
      for (size_t i = 0; i < fields.size(); i++) {
        words.push_back(word(fields[i], *fields[i]));
        if (i + 1 < fields.size() || !is_dict_field) write_value_words(entries[i].value, words);
      }
      return;
    case kEntries:
    case kDict:
    case kOrdered: {
      const uint64_t* version = dict_version(object);
      words.push_back({version, *version});
      return;
    }
    case kLength: {
      const Py_ssize_t* length = length_of(object);
      words.push_back({reinterpret_cast<const uint64_t*>(length), static_cast<uint64_t>(*length)});
      return;
    }
    case kType: {
      // A change sets the version to zero, and later to a number that no type has had. The rest of the word is padding.
      const auto* version = reinterpret_cast<const uint64_t*>(&as_type(object)->tp_version_tag);
      words.push_back({version, *version});
      return;
    }
    case kList: {
      auto* list = reinterpret_cast<PyListObject*>(object);
      words.push_back(word(&list->ob_base.ob_size, list->ob_base.ob_size));
      words.push_back(word(&list->ob_item, list->ob_item));
      for (size_t i = 0; i < entries.size(); i++) {
        words.push_back(word(&list->ob_item[i], list->ob_item[i]));
        write_value_words(entries[i].value, words);
      }
      return;
    }
    case kSet: {
      auto* set = reinterpret_cast<PySetObject*>(object);
      words.push_back(word(&set->used, set->used));
      words.push_back(word(&set->mask, set->mask));
      words.push_back(word(&set->table, set->table));
      for (Py_ssize_t i = 0; i <= set->mask; i++) words.push_back(word(&set->table[i].key, set->table[i].key));
    }
  }
}

void Check::add_differences(std::vector<Difference>& all, Objects& now) const {
  if (kind == kType) {
    all.push_back({path, py::make_tuple("class"), py::make_tuple("class with other attributes")});
    return;
  }
  if (!read(true, now)) {
    auto length = static_cast<uint64_t>(size_of(object));
    if (length != number) {
      all.push_back({"len(" + path + ")", shown(py::int_(number).ptr()), shown(py::int_(length).ptr())});
      return;
    }
    all.push_back({path, py::make_tuple("keys"), py::make_tuple("keys")});
    return;
  }
  for (size_t i = 0; i < now.size(); i++) {
    const Entry& entry = entries[i];
    if (entry.value.is(now[i], true)) continue;
    all.push_back({entry_path(entry, i), entry.value.shown(), shown(now[i])});
  }
}

void Check::add_paths(std::vector<std::string>& all) const {
  if (kind == kType) return;  // of interest to nobody but the check
  if (kind == kSet || kind == kLength) all.push_back("len(" + path + ")");
  for (size_t i = 0; i < entries.size() && kind != kSet; i++) all.push_back(entry_path(entries[i], i));
}

}  // namespace torchreel::graphs
