// The two files of a spool, as they were at one moment. No torch, no Python.
//
// A recording process appends to both, and rewrites nothing but the head of the events. So a size and a copy of the
// head are a consistent view of a spool that still grows. Whoever makes a SpoolFiles owns the descriptors in it, and
// hands them to the Decoder, which closes them.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <string>
#include <utility>

namespace torchreel {

// An open file, or -1.
class Descriptor {
 public:
  explicit Descriptor(int file) : file_(file) {}
  Descriptor(Descriptor&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (file_ >= 0) close(file_);
  }
  int get() const { return file_; }
  // Whether so many bytes are there.
  bool read(void* data, size_t bytes, uint64_t offset) const {
    return pread(file_, data, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
  }
  uint64_t size() const;

 private:
  int file_;
};

struct SpoolFiles {
  Descriptor definitions;
  Descriptor events;
  uint64_t definitions_size;
  uint64_t events_size;
  std::string head;  // the first bytes of the events

  // All that is there now. Throws SpoolError.
  static SpoolFiles in(const std::string& directory);
};

}  // namespace torchreel
