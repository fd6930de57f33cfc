// A pickle machine that knows plain values and nothing else: None, booleans, numbers, text, bytes, lists, tuples and
// dictionaries. What would load or call something is refused by name, so a file can execute nothing.
//
// It works in memory bounded by the bytes that are there: a length is held against them before anything is made, and
// nothing here or behind it walks what it built recursively, so nesting and self-reference do no harm.
// Requires the GIL: it makes Python objects. The same object in the file is the same object in memory.
#pragma once

#include <Python.h>

#include <cstdint>
#include <stdexcept>
#include <vector>

namespace torchreel {

// The bytes are not a pickle.
struct PickleError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// ... because their end is missing.
struct TruncatedPickleError : PickleError {
  using PickleError::PickleError;
};
// They are a pickle of more than plain values.
struct RefusedPickleError : PickleError {
  using PickleError::PickleError;
};

// The bytes of a pickle, taken from the front: all in memory, or a window of a file, which is read rather than mapped
// because a file that another process cuts short would end this one.
class PickleBytes {
 public:
  PickleBytes(const char* data, size_t size);
  PickleBytes(int file, uint64_t size) : file_(file), size_(size) {}

  uint64_t size() const { return size_; }
  uint64_t offset() const { return base_ + static_cast<uint64_t>(at_ - begin_); }
  uint64_t left() const { return size_ - offset(); }
  // The next bytes in one piece, which stay until the next call. Throws TruncatedPickleError.
  const unsigned char* take(uint64_t count) {
    if (count > static_cast<uint64_t>(end_ - at_)) refill(count);
    const unsigned char* taken = at_;
    at_ += count;
    return taken;
  }
  // The next bytes up to a line feed, which is taken too; at most `limit` of them.
  std::string_view line(uint64_t limit);

 private:
  void refill(uint64_t count);

  int file_ = -1;
  uint64_t size_;
  uint64_t base_ = 0;  // where in the file the window begins
  std::vector<unsigned char> window_;
  const unsigned char* begin_ = nullptr;
  const unsigned char* at_ = nullptr;
  const unsigned char* end_ = nullptr;
};

// Python has raised an error, which is set.
struct PythonError {};

// The value of a pickle, a new reference. Throws PickleError, or PythonError.
PyObject* read_pickle(PickleBytes bytes);

}  // namespace torchreel
