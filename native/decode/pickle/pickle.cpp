#include "decode/pickle/pickle.h"

#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>

namespace torchreel {

namespace {

constexpr uint64_t kWindow = 1 << 20;
constexpr uint64_t kUnlimited = UINT64_MAX;
constexpr uint64_t kIntegerBytes = 16;
constexpr uint64_t kNumberText = 48;  // the characters of an integer of 128 bits, or of a float, and some more
constexpr uint64_t kSignalInterval = 1 << 20;
// A container of a snapshot takes far more than four bytes of its file, and in memory at least 56: fewer would let a
// small file take a large memory.
constexpr uint64_t kBytesPerContainer = 4;
constexpr uint64_t kFreeContainers = 1000;

std::string at_byte(uint64_t offset) { return "byte " + std::to_string(offset); }

// Text of the file for a message: short, and without characters that a terminal obeys.
std::string printable(std::string_view text) {
  std::string shown;
  for (char c : text.substr(0, 60)) shown.push_back(c >= ' ' && c <= '~' ? c : '?');
  return text.size() > 60 ? shown + "..." : shown;
}

// The opcodes that make more than plain values, or null for what is no opcode at all.
const char* refused_name(unsigned char opcode) {
  switch (opcode) {
    case 'c': return "GLOBAL";
    case 0x93: return "STACK_GLOBAL";
    case 'i': return "INST";
    case 'o': return "OBJ";
    case 'R': return "REDUCE";
    case 'b': return "BUILD";
    case 0x81: return "NEWOBJ";
    case 0x92: return "NEWOBJ_EX";
    case 0x82: return "EXT1";
    case 0x83: return "EXT2";
    case 0x84: return "EXT4";
    case 'P': return "PERSID";
    case 'Q': return "BINPERSID";
    case 0x8f: return "EMPTY_SET";
    case 0x90: return "ADDITEMS";
    case 0x91: return "FROZENSET";
    case 0x96: return "BYTEARRAY8";
    case 0x97: return "NEXT_BUFFER";
    case 0x98: return "READONLY_BUFFER";
    default: return nullptr;
  }
}

PyObject* checked(PyObject* object) {
  if (object == nullptr) throw PythonError();
  return object;
}

}  // namespace

PickleBytes::PickleBytes(const char* data, size_t size)
    : size_(size), begin_(reinterpret_cast<const unsigned char*>(data)), at_(begin_), end_(begin_ + size) {}

void PickleBytes::refill(uint64_t count) {
  if (count > left()) {
    throw TruncatedPickleError("it ends at " + at_byte(size_) + ", and " + std::to_string(count) +
                               " more bytes are announced at " + at_byte(offset()));
  }
  std::vector<unsigned char> next(std::min(std::max(count, kWindow), left()));
  size_t filled = static_cast<size_t>(end_ - at_);
  if (filled > 0) std::memcpy(next.data(), at_, filled);
  base_ = offset();
  while (filled < next.size()) {
    ssize_t got = pread(file_, next.data() + filled, next.size() - filled, static_cast<off_t>(base_ + filled));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) throw TruncatedPickleError("it could be read only up to " + at_byte(base_ + filled));
    filled += static_cast<size_t>(got);
  }
  window_ = std::move(next);
  begin_ = at_ = window_.data();
  end_ = begin_ + window_.size();
}

std::string_view PickleBytes::line(uint64_t limit) {
  uint64_t searched = 0;
  while (true) {
    uint64_t there = std::min(static_cast<uint64_t>(end_ - at_), limit);
    if (there > searched) {
      const void* found = std::memchr(at_ + searched, '\n', there - searched);
      if (found != nullptr) {
        auto length = static_cast<size_t>(static_cast<const unsigned char*>(found) - at_);
        return {reinterpret_cast<const char*>(take(length + 1)), length};
      }
      searched = there;
    }
    if (searched == limit) throw PickleError("a line at " + at_byte(offset()) + " is too long");
    if (searched == left()) throw TruncatedPickleError("it ends in the middle of a line, at " + at_byte(size_));
    refill(std::min(std::max(searched * 2, kWindow), left()));
  }
}

namespace {

class Machine {
 public:
  explicit Machine(PickleBytes bytes) : bytes_(std::move(bytes)) {}
  Machine(const Machine&) = delete;
  ~Machine() {
    for (PyObject* object : stack_) Py_DECREF(object);
    for (PyObject* object : memo_) Py_XDECREF(object);
  }

  PyObject* run();

 private:
  void step();

  template <typename T>
  T number() {
    static_assert(std::endian::native == std::endian::little);
    T value;
    std::memcpy(&value, bytes_.take(sizeof value), sizeof value);
    return value;
  }

  std::string where() const { return at_byte(opcode_at_); }
  [[noreturn]] void fail(const std::string& what) const { throw PickleError(what + " at " + where()); }
  void refuse();
  std::string asked_for();

  void push(PyObject* object) { stack_.push_back(checked(object)); }
  void push_new_container(PyObject* object);
  void push_again(PyObject* object);
  void require(size_t count) const;
  size_t pop_mark();
  void drop_to(size_t size);

  void protocol();
  void frame();
  void mark() { marks_.push_back(stack_.size()); }
  void pop();
  void pop_to_mark() { drop_to(pop_mark()); }
  void duplicate();

  void none() { push(Py_NewRef(Py_None)); }
  void yes() { push(Py_NewRef(Py_True)); }
  void no() { push(Py_NewRef(Py_False)); }
  template <typename T>
  void integer() {
    push(PyLong_FromLong(number<T>()));
  }
  template <typename T>
  void long_integer();
  void integer_line();
  void long_integer_line();
  PyObject* decimal(std::string_view text);
  void real();
  void real_line();

  template <typename T>
  void text();
  template <typename T>
  void old_text();
  void old_text_line();
  void text_line();
  template <typename T>
  void bytes();
  uint64_t length(uint64_t count) const;
  void push_text(PyObject* decoded);

  void empty_list() { push_new_container(PyList_New(0)); }
  void empty_dict() { push_new_container(PyDict_New()); }
  void empty_tuple() { push(PyTuple_New(0)); }
  template <size_t count>
  void short_tuple() {
    require(count);
    tuple_from(stack_.size() - count);
  }
  void tuple() { tuple_from(pop_mark()); }
  void tuple_from(size_t first);
  void list() { push_new_container(take_list(pop_mark())); }
  PyObject* take_list(size_t first);
  void dict();
  void append() { append_from((require(2), stack_.size() - 1)); }
  void appends() { append_from(pop_mark()); }
  void append_from(size_t first);
  void set_item() { set_from((require(3), stack_.size() - 2)); }
  void set_items() { set_from(pop_mark()); }
  void set_from(size_t first);

  template <typename T>
  void put() {
    remember(number<T>());
  }
  void put_line() { remember(index_line()); }
  void memoize() { remember(memoized_); }
  void remember(uint64_t index);
  template <typename T>
  void get() {
    recall(number<T>());
  }
  void get_line() { recall(index_line()); }
  void recall(uint64_t index);
  uint64_t index_line();

  PickleBytes bytes_;
  uint64_t opcode_at_ = 0;
  unsigned char opcode_ = 0;
  std::vector<PyObject*> stack_;  // owned
  std::vector<size_t> marks_;
  std::vector<PyObject*> memo_;  // owned; null where nothing was put
  uint64_t memoized_ = 0;
  uint64_t containers_ = 0;
};

// One opcode, which names itself in the comment as Python's pickletools does.
void Machine::step() {
  switch (opcode_) {
    case 0x80: return protocol();                // PROTO
    case 0x95: return frame();                   // FRAME
    case '(': return mark();                     // MARK
    case '0': return pop();                      // POP
    case '1': return pop_to_mark();              // POP_MARK
    case '2': return duplicate();                // DUP
    case 'N': return none();                     // NONE
    case 0x88: return yes();                     // NEWTRUE
    case 0x89: return no();                      // NEWFALSE
    case 'K': return integer<uint8_t>();         // BININT1
    case 'M': return integer<uint16_t>();        // BININT2
    case 'J': return integer<int32_t>();         // BININT
    case 0x8a: return long_integer<uint8_t>();   // LONG1
    case 0x8b: return long_integer<uint32_t>();  // LONG4
    case 'I': return integer_line();             // INT
    case 'L': return long_integer_line();        // LONG
    case 'G': return real();                     // BINFLOAT
    case 'F': return real_line();                // FLOAT
    case 0x8c: return text<uint8_t>();           // SHORT_BINUNICODE
    case 'X': return text<uint32_t>();           // BINUNICODE
    case 0x8d: return text<uint64_t>();          // BINUNICODE8
    case 'V': return text_line();                // UNICODE
    case 'U': return old_text<uint8_t>();        // SHORT_BINSTRING
    case 'T': return old_text<uint32_t>();       // BINSTRING
    case 'S': return old_text_line();            // STRING
    case 'C': return bytes<uint8_t>();           // SHORT_BINBYTES
    case 'B': return bytes<uint32_t>();          // BINBYTES
    case 0x8e: return bytes<uint64_t>();         // BINBYTES8
    case ']': return empty_list();               // EMPTY_LIST
    case 'l': return list();                     // LIST
    case 'a': return append();                   // APPEND
    case 'e': return appends();                  // APPENDS
    case '}': return empty_dict();               // EMPTY_DICT
    case 'd': return dict();                     // DICT
    case 's': return set_item();                 // SETITEM
    case 'u': return set_items();                // SETITEMS
    case ')': return empty_tuple();              // EMPTY_TUPLE
    case 0x85: return short_tuple<1>();          // TUPLE1
    case 0x86: return short_tuple<2>();          // TUPLE2
    case 0x87: return short_tuple<3>();          // TUPLE3
    case 't': return tuple();                    // TUPLE
    case 'q': return put<uint8_t>();             // BINPUT
    case 'r': return put<uint32_t>();            // LONG_BINPUT
    case 'p': return put_line();                 // PUT
    case 0x94: return memoize();                 // MEMOIZE
    case 'h': return get<uint8_t>();             // BINGET
    case 'j': return get<uint32_t>();            // LONG_BINGET
    case 'g': return get_line();                 // GET
    default: refuse();
  }
}

PyObject* Machine::run() {
  for (uint64_t steps = 1;; steps++) {
    opcode_at_ = bytes_.offset();
    if (bytes_.left() == 0) throw TruncatedPickleError("it ends at " + where() + " without a STOP");
    opcode_ = *bytes_.take(1);
    if (opcode_ == '.') break;
    step();
    if (steps % kSignalInterval == 0 && PyErr_CheckSignals() != 0) throw PythonError();
  }
  require(1);
  PyObject* value = stack_.back();
  stack_.pop_back();
  return value;
}

void Machine::refuse() {
  const char* name = refused_name(opcode_);
  if (name == nullptr) fail("there is no pickle opcode " + std::to_string(opcode_) + ", which stands");
  throw RefusedPickleError(name + asked_for() + " at " + where());
}

// Of what would be loaded, the name that is asked for: it tells people what the file is.
std::string Machine::asked_for() {
  if (opcode_ == 'c' || opcode_ == 'i') {
    std::string module = printable(bytes_.line(kUnlimited));
    return " (" + module + "." + printable(bytes_.line(kUnlimited)) + ")";
  }
  if (opcode_ != 0x93 || stack_.size() < 2) return "";
  std::string asked;
  for (PyObject* part : {stack_[stack_.size() - 2], stack_.back()}) {
    Py_ssize_t size = 0;
    const char* text = PyUnicode_Check(part) ? PyUnicode_AsUTF8AndSize(part, &size) : nullptr;
    PyErr_Clear();
    if (text == nullptr) return "";
    asked += (asked.empty() ? "" : ".") + printable({text, static_cast<size_t>(size)});
  }
  return " (" + asked + ")";
}

void Machine::push_new_container(PyObject* object) {
  push(object);
  if (++containers_ > kFreeContainers + bytes_.size() / kBytesPerContainer) fail("there are too many containers");
}

void Machine::push_again(PyObject* object) {
  Py_INCREF(object);
  push(object);
}

// What lies below the last mark belongs to a list or dictionary that is being made.
void Machine::require(size_t count) const {
  size_t floor = marks_.empty() ? 0 : marks_.back();
  if (stack_.size() - floor < count) fail("too few values are on the stack");
}

size_t Machine::pop_mark() {
  if (marks_.empty()) fail("there is no mark on the stack");
  size_t first = marks_.back();
  marks_.pop_back();
  return first;
}

void Machine::drop_to(size_t size) {
  while (stack_.size() > size) {
    Py_DECREF(stack_.back());
    stack_.pop_back();
  }
}

void Machine::protocol() {
  int version = number<uint8_t>();
  if (version > 5) fail("pickle protocol " + std::to_string(version) + " is not known, which is announced");
}

void Machine::frame() { (void)length(number<uint64_t>()); }

// A pop with nothing above the mark takes the mark.
void Machine::pop() {
  if (!marks_.empty() && marks_.back() == stack_.size()) {
    marks_.pop_back();
  } else {
    require(1);
    drop_to(stack_.size() - 1);
  }
}

void Machine::duplicate() {
  require(1);
  push_again(stack_.back());
}

template <typename T>
void Machine::long_integer() {
  uint64_t size = number<T>();
  if (size > kIntegerBytes) fail("an integer of " + std::to_string(size) + " bytes is too large, which is announced");
  const unsigned char* bytes = bytes_.take(size);
  if (size == 0 || size > sizeof(uint64_t)) {
    push(size == 0 ? PyLong_FromLong(0) : _PyLong_FromByteArray(bytes, size, 1, 1));
    return;
  }
  uint64_t value = 0;
  std::memcpy(&value, bytes, size);
  size_t unused = 64 - 8 * size;
  push(PyLong_FromLongLong(static_cast<int64_t>(value << unused) >> unused));
}

void Machine::integer_line() {
  std::string_view text = bytes_.line(kNumberText);
  if (text == "00" || text == "01") {
    push(PyBool_FromLong(text == "01"));
  } else {
    push(decimal(text));
  }
}

void Machine::long_integer_line() {
  std::string_view text = bytes_.line(kNumberText);
  if (text.ends_with('L')) text.remove_suffix(1);
  push(decimal(text));
}

PyObject* Machine::decimal(std::string_view text) {
  std::string_view digits = text.starts_with('-') ? text.substr(1) : text;
  if (digits.empty() || digits.size() > 39 || digits.find_first_not_of("0123456789") != std::string_view::npos) {
    fail("'" + printable(text) + "' is no integer of at most 128 bits, which stands");
  }
  return PyLong_FromString(std::string(text).c_str(), nullptr, 10);
}

void Machine::real() { push(PyFloat_FromDouble(std::bit_cast<double>(__builtin_bswap64(number<uint64_t>())))); }

void Machine::real_line() {
  std::string text(bytes_.line(kNumberText));
  char* end = nullptr;
  double value = PyOS_string_to_double(text.c_str(), &end, nullptr);
  bool whole = !PyErr_Occurred() && end == text.c_str() + text.size();
  PyErr_Clear();
  if (!whole) fail("'" + printable(text) + "' is no number, which stands");
  push(PyFloat_FromDouble(value));
}

uint64_t Machine::length(uint64_t count) const {
  if (count > bytes_.left()) {
    throw TruncatedPickleError(std::to_string(count) + " bytes are announced at " + where() + ", and " +
                               std::to_string(bytes_.left()) + " are left");
  }
  return count;
}

void Machine::push_text(PyObject* decoded) {
  if (decoded == nullptr && PyErr_ExceptionMatches(PyExc_UnicodeError)) {
    PyErr_Clear();
    fail("a text is not in the encoding that it should have");
  }
  push(decoded);
}

// Python writes half a surrogate pair, which file names may hold, as if it were a character.
template <typename T>
void Machine::text() {
  uint64_t size = length(number<T>());
  auto* data = reinterpret_cast<const char*>(bytes_.take(size));
  push_text(PyUnicode_DecodeUTF8(data, static_cast<Py_ssize_t>(size), "surrogatepass"));
}

template <typename T>
void Machine::old_text() {
  uint64_t size = length(number<T>());
  auto* data = reinterpret_cast<const char*>(bytes_.take(size));
  push_text(PyUnicode_DecodeASCII(data, static_cast<Py_ssize_t>(size), "strict"));
}

void Machine::old_text_line() {
  std::string_view quoted = bytes_.line(kUnlimited);
  bool whole = quoted.size() >= 2 && quoted.front() == quoted.back() && (quoted[0] == '\'' || quoted[0] == '"');
  std::string_view text = whole ? quoted.substr(1, quoted.size() - 2) : quoted;
  if (!whole || text.find('\\') != std::string_view::npos) fail("a text is not plainly quoted");
  push_text(PyUnicode_DecodeASCII(text.data(), static_cast<Py_ssize_t>(text.size()), "strict"));
}

void Machine::text_line() {
  std::string_view text = bytes_.line(kUnlimited);
  push_text(PyUnicode_DecodeRawUnicodeEscape(text.data(), static_cast<Py_ssize_t>(text.size()), "strict"));
}

template <typename T>
void Machine::bytes() {
  uint64_t size = length(number<T>());
  auto* data = reinterpret_cast<const char*>(bytes_.take(size));
  push(PyBytes_FromStringAndSize(data, static_cast<Py_ssize_t>(size)));
}

void Machine::tuple_from(size_t first) {
  size_t count = stack_.size() - first;
  PyObject* made = checked(PyTuple_New(static_cast<Py_ssize_t>(count)));
  for (size_t i = 0; i < count; i++) PyTuple_SET_ITEM(made, static_cast<Py_ssize_t>(i), stack_[first + i]);
  stack_.resize(first);
  push_new_container(made);
}

// The values from `first` on as a list of their own; they leave the stack.
PyObject* Machine::take_list(size_t first) {
  size_t count = stack_.size() - first;
  PyObject* made = checked(PyList_New(static_cast<Py_ssize_t>(count)));
  for (size_t i = 0; i < count; i++) PyList_SET_ITEM(made, static_cast<Py_ssize_t>(i), stack_[first + i]);
  stack_.resize(first);
  return made;
}

void Machine::dict() {
  size_t first = pop_mark();
  PyObject* made = checked(PyDict_New());
  stack_.insert(stack_.begin() + static_cast<ptrdiff_t>(first), made);
  set_from(first + 1);
  if (++containers_ > kFreeContainers + bytes_.size() / kBytesPerContainer) fail("there are too many containers");
}

void Machine::append_from(size_t first) {
  size_t floor = marks_.empty() ? 0 : marks_.back();
  if (first <= floor) fail("too few values are on the stack");
  PyObject* target = stack_[first - 1];
  if (!PyList_CheckExact(target)) fail("something other than a list is appended to");
  PyObject* values = take_list(first);
  Py_ssize_t end = PyList_GET_SIZE(target);
  int failed = PyList_SetSlice(target, end, end, values);
  Py_DECREF(values);
  if (failed != 0) throw PythonError();
}

// Keys are text: other keys are in no snapshot, nested ones are hashed recursively, and integers of chosen values
// make a dictionary slow.
void Machine::set_from(size_t first) {
  size_t floor = marks_.empty() ? 0 : marks_.back();
  if (first <= floor) fail("too few values are on the stack");
  PyObject* target = stack_[first - 1];
  if (!PyDict_CheckExact(target)) fail("items are set in something other than a dictionary");
  if ((stack_.size() - first) % 2 != 0) fail("a key without a value is set");
  for (size_t i = first; i < stack_.size(); i += 2) {
    if (!PyUnicode_CheckExact(stack_[i])) {
      throw RefusedPickleError(std::string("a dictionary with a key of type ") + Py_TYPE(stack_[i])->tp_name + " at " +
                               where());
    }
    if (PyDict_SetItem(target, stack_[i], stack_[i + 1]) != 0) throw PythonError();
  }
  drop_to(first);
}

// An index is at most the number of values so far, for every pickler counts; that bounds the memo by the file.
void Machine::remember(uint64_t index) {
  require(1);
  if (index > bytes_.offset()) fail("a value is remembered under the impossible number " + std::to_string(index));
  if (index >= memo_.size()) memo_.resize(index + 1, nullptr);
  Py_INCREF(stack_.back());
  if (memo_[index] == nullptr) {
    memoized_++;
  } else {
    Py_DECREF(memo_[index]);
  }
  memo_[index] = stack_.back();
}

void Machine::recall(uint64_t index) {
  if (index >= memo_.size() || memo_[index] == nullptr) {
    fail("nothing was remembered under the number " + std::to_string(index) + ", which is asked for");
  }
  push_again(memo_[index]);
}

uint64_t Machine::index_line() {
  std::string_view text = bytes_.line(kNumberText);
  if (text.empty() || text.size() > 18 || text.find_first_not_of("0123456789") != std::string_view::npos) {
    fail("'" + printable(text) + "' is no number of a remembered value, which stands");
  }
  return std::stoull(std::string(text));
}

}  // namespace

PyObject* read_pickle(PickleBytes bytes) { return Machine(std::move(bytes)).run(); }

}  // namespace torchreel
