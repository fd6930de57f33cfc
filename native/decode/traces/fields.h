// A field of msgspec's structs, of many rows at once -> a column. Requires the GIL.
//
// A struct keeps its values at fixed places, which the class itself names (a member descriptor): Python's way to a
// value is a call for each row, this is a load.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace torchreel {

// A list of structs. They must stay alive and unchanged while a column is read.
struct Rows {
  PyObject** first;
  size_t count;
};

// Throws PythonError.
class Field {
 public:
  // Of a class, as it has it: Event.name. Throws std::invalid_argument for anything else.
  explicit Field(PyObject* descriptor);

  // The value in a row. Throws std::invalid_argument for a row of another class.
  PyObject* of(PyObject* row) const {
    if (Py_TYPE(row) != type_) refuse();
    return *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(row) + offset_);
  }

  using Ints = std::vector<int64_t>;
  // Microseconds as JSON, in nanoseconds; nothing if one has another form.
  std::optional<Ints> times(Rows rows) const;
  // Whole numbers; `missing` for None. Nothing if one is anything else, or is larger than 64 bits.
  std::optional<Ints> integers(Rows rows, int64_t missing) const;
  // Numbers; NaN for None. Nothing if one is anything else.
  std::optional<std::vector<double>> numbers(Rows rows) const;
  // The number that a dictionary gives each value, as dict[value]; `missing` for None.
  Ints codes(Rows rows, PyObject* dictionary, int64_t missing) const;
  // The same for two fields as a key of two.
  static Ints pair_codes(const Field& first, const Field& second, Rows rows, PyObject* dictionary);
  // The JSON of all rows as one list, {} for an empty one: new bytes.
  PyObject* joined(Rows rows) const;
  // Whether any of the texts is not empty.
  bool any(Rows rows) const;

 private:
  [[noreturn]] static void refuse();

  PyTypeObject* type_;
  Py_ssize_t offset_;
};

// The bytes of an object that lends them, such as msgspec.Raw, until its end.
class Lent {
 public:
  explicit Lent(PyObject* object);
  ~Lent() { PyBuffer_Release(&bytes_); }
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;

  std::string_view text() const { return {static_cast<const char*>(bytes_.buf), static_cast<size_t>(bytes_.len)}; }

 private:
  Py_buffer bytes_;
};

// Python's own hash, whose seed no file knows: none can be made whose texts all have the same.
struct SeededHash {
  size_t operator()(const std::string& text) const {
    return static_cast<size_t>(_Py_HashBytes(text.data(), static_cast<Py_ssize_t>(text.size())));
  }
};

// Distinct rows of some fields of JSON, numbered as they come.
class JsonRows {
 public:
  // The number of each row.
  std::vector<int64_t> numbers(const std::vector<Field>& fields, Rows rows);
  // The texts of all rows that have a number, the fields of each in their order.
  const std::vector<std::vector<std::string>>& texts() const { return texts_; }

 private:
  std::unordered_map<std::string, int64_t, SeededHash> numbers_;
  std::vector<std::vector<std::string>> texts_;
};

// Fields of JSON as objects of their own.
class JsonObjects {
 public:
  struct Part {
    std::string key;  // as JSON
    std::optional<Field> field;
    std::string value;  // of all rows, if there is no field
  };

  // `compact` gives a text of JSON without needless spaces.
  JsonObjects(std::vector<Part> parts, PyObject* compact);
  // The number that a dictionary gives the object of each row; `missing` where all of the parts are empty.
  std::vector<int64_t> codes(Rows rows, PyObject* dictionary, int64_t missing);

 private:
  bool write(PyObject* row);
  void write_part(const Part& part, std::string_view value);
  std::string_view compact(std::string_view text);

  std::vector<Part> parts_;
  PyObject* compact_;
  std::string text_;  // the object of one row
  std::unordered_map<std::string, std::string, SeededHash> compacted_;
};

}  // namespace torchreel
