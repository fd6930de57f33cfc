// The two files that a recording is streamed to, or, for a flight recorder, their definitions in memory.
// Thread-safe; does not require the GIL.
#pragma once

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <mutex>
#include <string>
#include <string_view>

#include "base/spool_format.h"
#include "base/text.h"

namespace torchreel {

class Spool {
 public:
  // An empty directory keeps definitions in memory, for write_copy().
  explicit Spool(std::string directory);
  ~Spool();
  Spool(const Spool&) = delete;

  void define(layout::Definition type, std::string_view payload);
  // Returns false, for good, once the disk refuses: what was written before stays valid.
  bool append(const layout::BlockHeader& header, const uint64_t* words);
  void write_header(const layout::EventsHeader& header);

  // A new spool beside this one, with the definitions kept in memory so far.
  void copy_definitions(Spool& target);
  // Makes the files if nothing was written yet.
  bool open();
  int error() const { return error_; }

 private:
  void remove();
  bool write_all(int file, const void* data, size_t bytes, uint64_t* offset);

  std::string directory_;
  std::mutex mutex_;
  std::string memory_;  // definitions not on disk: all of them for a flight recorder
  int events_ = -1;
  int definitions_ = -1;
  uint64_t events_end_ = sizeof(layout::EventsHeader);
  uint64_t definitions_end_ = 0;
  bool opened_ = false;
  std::atomic<int> error_{0};  // errno of the first write that failed; read without the lock
};

// Builds the payload of a definition.
class Payload {
 public:
  Payload& u32(uint32_t value) { return raw(&value, 4); }
  Payload& u64(uint64_t value) { return raw(&value, 8); }
  Payload& text(std::string_view value) {
    bytes_.append(valid_text(value)).push_back('\0');
    return *this;
  }
  Payload& raw(const void* data, size_t bytes) {
    bytes_.append(static_cast<const char*>(data), bytes);
    return *this;
  }
  operator std::string_view() const { return bytes_; }

 private:
  std::string bytes_;
};

}  // namespace torchreel
