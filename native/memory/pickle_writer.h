// Writes a pickle of plain containers (protocol 4), straight into text: no Python object is made on the way.
// What is written often is memoized: keys and names by their address, other things by a key of the caller's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

namespace torchreel {

class PickleWriter {
 public:
  PickleWriter() { bytes_ = "\x80\x04"; }

  // A dictionary or list is opened, filled with keys and values in turn, or with items, and closed.
  void open_dict() { bytes_ += "}("; }
  void close_dict() { bytes_ += 'u'; }
  void open_list() { bytes_ += "]("; }
  void close_list() { bytes_ += 'e'; }
  void empty_list() { bytes_ += ']'; }

  // A text that stays where it is: a literal.
  void literal(const char* text);
  void text(std::string_view text);
  void integer(int64_t value);
  void real(double value);
  void boolean(bool value) { bytes_ += value ? '\x88' : '\x89'; }
  void none() { bytes_ += 'N'; }
  void pair(int64_t first, int64_t second);

  // What has been written last gets a number, by which it can be written again.
  uint32_t memoize() {
    bytes_ += '\x94';
    return next_++;
  }
  void again(uint32_t number);

  void entry(const char* key, int64_t value) { literal(key), integer(value); }
  void entry(const char* key, const char* value) { literal(key), literal(value); }

  std::string finish() {
    bytes_ += '.';
    return std::move(bytes_);
  }

 private:
  std::string bytes_;
  std::unordered_map<const void*, uint32_t> literals_;
  uint32_t next_ = 0;
};

}  // namespace torchreel
