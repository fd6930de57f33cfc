#include "decode/traces/fields.h"

#include <structmember.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

#include "decode/pickle/pickle.h"
#include "decode/pickle/stack_table.h"
#include "decode/traces/times.h"

namespace torchreel {
namespace {

int64_t code_of(PyObject* key, PyObject* dictionary) {
  PyObject* known = PyDict_GetItemWithError(dictionary, key);
  if (known != nullptr) return PyLong_AsLongLong(known);
  if (PyErr_Occurred() != nullptr) throw PythonError();
  Reference added(PyObject_GetItem(dictionary, key));
  if (added == nullptr) throw PythonError();
  return PyLong_AsLongLong(added.get());
}

// Whether two values are surely the same; most often they are the same number, or texts of the same characters.
bool same(PyObject* a, PyObject* b) {
  if (a == b) return true;
  if (Py_TYPE(a) != Py_TYPE(b) || (!PyLong_CheckExact(a) && !PyUnicode_CheckExact(a))) return false;
  return PyObject_RichCompareBool(a, b, Py_EQ) == 1;
}

}  // namespace

Lent::Lent(PyObject* object) {
  if (PyObject_GetBuffer(object, &bytes_, PyBUF_SIMPLE) != 0) throw PythonError();
}

Field::Field(PyObject* descriptor) {
  if (Py_TYPE(descriptor) != &PyMemberDescr_Type) throw std::invalid_argument("this is no field of a class");
  auto* member = reinterpret_cast<PyMemberDescrObject*>(descriptor);
  if (member->d_member->type != T_OBJECT_EX) throw std::invalid_argument("the field holds no object");
  type_ = PyDescr_TYPE(descriptor);
  offset_ = member->d_member->offset;
}

void Field::refuse() { throw std::invalid_argument("a row is of another class than the field"); }

std::optional<Field::Ints> Field::times(Rows rows) const {
  Ints found(rows.count);
  for (size_t i = 0; i < rows.count; i++) {
    if (!plain_nanoseconds(Lent(of(rows.first[i])).text(), &found[i])) return std::nullopt;
  }
  return found;
}

std::optional<Field::Ints> Field::integers(Rows rows, int64_t missing) const {
  Ints found(rows.count);
  for (size_t i = 0; i < rows.count; i++) {
    PyObject* value = of(rows.first[i]);
    int overflow = 0;
    if (value == Py_None) {
      found[i] = missing;
    } else if (PyLong_CheckExact(value)) {
      found[i] = PyLong_AsLongLongAndOverflow(value, &overflow);
      if (overflow != 0) return std::nullopt;
    } else {
      return std::nullopt;
    }
  }
  return found;
}

std::optional<std::vector<double>> Field::numbers(Rows rows) const {
  std::vector<double> found(rows.count);
  for (size_t i = 0; i < rows.count; i++) {
    PyObject* value = of(rows.first[i]);
    if (value == Py_None) {
      found[i] = std::numeric_limits<double>::quiet_NaN();
    } else if (PyFloat_CheckExact(value)) {
      found[i] = PyFloat_AS_DOUBLE(value);
    } else {
      return std::nullopt;
    }
  }
  return found;
}

Field::Ints Field::codes(Rows rows, PyObject* dictionary, int64_t missing) const {
  Ints found(rows.count);
  for (size_t i = 0; i < rows.count; i++) {
    PyObject* value = of(rows.first[i]);
    found[i] = value == Py_None ? missing : code_of(value, dictionary);
  }
  return found;
}

Field::Ints Field::pair_codes(const Field& first, const Field& second, Rows rows, PyObject* dictionary) {
  Ints found(rows.count);
  PyObject *last_one = nullptr, *last_other = nullptr;
  for (size_t i = 0; i < rows.count; i++) {
    PyObject *one = first.of(rows.first[i]), *other = second.of(rows.first[i]);
    if (last_one != nullptr && same(one, last_one) && same(other, last_other)) {
      found[i] = found[i - 1];
      continue;
    }
    Reference key(PyTuple_Pack(2, one, other));
    if (key == nullptr) throw PythonError();
    found[i] = code_of(key.get(), dictionary);
    last_one = one;
    last_other = other;
  }
  return found;
}

PyObject* Field::joined(Rows rows) const {
  constexpr std::string_view kEmpty = "{}";
  size_t size = rows.count == 0 ? 2 : rows.count + 1;  // brackets and commas
  for (size_t i = 0; i < rows.count; i++) {
    size_t length = Lent(of(rows.first[i])).text().size();
    size += length == 0 ? kEmpty.size() : length;
  }
  PyObject* text = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size));
  if (text == nullptr) throw PythonError();
  char* end = PyBytes_AS_STRING(text);
  *end++ = '[';
  for (size_t i = 0; i < rows.count; i++) {
    Lent lent(of(rows.first[i]));
    auto value = lent.text().empty() ? kEmpty : lent.text();
    if (i > 0) *end++ = ',';
    end = std::copy(value.begin(), value.end(), end);
  }
  *end = ']';
  return text;
}

bool Field::any(Rows rows) const {
  for (size_t i = 0; i < rows.count; i++) {
    if (!Lent(of(rows.first[i])).text().empty()) return true;
  }
  return false;
}

std::vector<int64_t> JsonRows::numbers(const std::vector<Field>& fields, Rows rows) {
  std::vector<int64_t> found(rows.count);
  std::string key;
  std::vector<size_t> ends(fields.size());
  for (size_t i = 0; i < rows.count; i++) {
    key.clear();
    for (size_t place = 0; place < fields.size(); place++) {
      Lent lent(fields[place].of(rows.first[i]));
      key += lent.text();
      ends[place] = key.size();
    }
    // Where the texts end is part of the key: [1] and [2] are no [1][2] and nothing.
    key.append(reinterpret_cast<const char*>(ends.data()), ends.size() * sizeof(size_t));
    auto [known, fresh] = numbers_.try_emplace(key, static_cast<int64_t>(texts_.size()));
    found[i] = known->second;
    if (!fresh) continue;
    auto& texts = texts_.emplace_back();
    for (size_t place = 0, begin = 0; place < fields.size(); begin = ends[place++]) {
      texts.push_back(key.substr(begin, ends[place] - begin));
    }
  }
  return found;
}

JsonObjects::JsonObjects(std::vector<Part> parts, PyObject* compact) : parts_(std::move(parts)), compact_(compact) {}

std::vector<int64_t> JsonObjects::codes(Rows rows, PyObject* dictionary, int64_t missing) {
  std::vector<int64_t> found(rows.count, missing);
  for (size_t i = 0; i < rows.count; i++) {
    if (!write(rows.first[i])) continue;
    Reference text(PyUnicode_DecodeUTF8(text_.data(), static_cast<Py_ssize_t>(text_.size()), "replace"));
    if (text == nullptr) throw PythonError();
    found[i] = code_of(text.get(), dictionary);
  }
  return found;
}

// False for a row without any of the parts.
bool JsonObjects::write(PyObject* row) {
  text_ = "{";
  for (const auto& part : parts_) {
    if (part.field) {
      write_part(part, Lent(part.field->of(row)).text());
    } else {
      write_part(part, part.value);
    }
  }
  text_ += '}';
  return text_.size() > 2;
}

void JsonObjects::write_part(const Part& part, std::string_view value) {
  if (value.empty()) return;
  if (text_.size() > 1) text_ += ", ";
  text_ += part.key;
  text_ += ": ";
  text_ += value[0] == '[' || value[0] == '{' ? compact(value) : value;
}

// Only lists and objects have spaces that mean nothing.
std::string_view JsonObjects::compact(std::string_view text) {
  auto [known, fresh] = compacted_.try_emplace(std::string(text));
  if (fresh) {
    Reference made(PyObject_CallFunction(compact_, "y#", text.data(), static_cast<Py_ssize_t>(text.size())));
    if (made == nullptr) throw PythonError();
    known->second = Lent(made.get()).text();
  }
  return known->second;
}

}  // namespace torchreel
