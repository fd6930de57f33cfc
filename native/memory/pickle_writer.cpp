#include "memory/pickle_writer.h"

#include <bit>
#include <cstring>

namespace torchreel {

namespace {

void put_little(std::string& bytes, uint64_t value, int count) {
  for (int i = 0; i < count; i++) bytes += static_cast<char>(value >> (8 * i));
}

}  // namespace

void PickleWriter::literal(const char* text_) {
  auto known = literals_.find(text_);
  if (known != literals_.end()) return again(known->second);
  text(text_);
  literals_.emplace(text_, memoize());
}

void PickleWriter::text(std::string_view text) {
  if (text.size() < 256) {
    bytes_ += '\x8c';
    put_little(bytes_, text.size(), 1);
  } else {
    bytes_ += 'X';
    put_little(bytes_, text.size(), 4);
  }
  bytes_ += text;
}

void PickleWriter::integer(int64_t value) {
  if (value >= 0 && value < 256) {
    bytes_ += 'K';
    put_little(bytes_, value, 1);
  } else if (value >= 0 && value < 65536) {
    bytes_ += 'M';
    put_little(bytes_, value, 2);
  } else if (value >= INT32_MIN && value <= INT32_MAX) {
    bytes_ += 'J';
    put_little(bytes_, value, 4);
  } else {
    int count = 8;
    // As few bytes as keep the sign.
    while (count > 1 && (value >> (8 * (count - 1) - 1) == 0 || value >> (8 * (count - 1) - 1) == -1)) count--;
    bytes_ += '\x8a';
    put_little(bytes_, count, 1);
    put_little(bytes_, value, count);
  }
}

void PickleWriter::real(double value) {
  auto bits = std::bit_cast<uint64_t>(value);
  bytes_ += 'G';
  for (int i = 7; i >= 0; i--) bytes_ += static_cast<char>(bits >> (8 * i));
}

void PickleWriter::pair(int64_t first, int64_t second) {
  integer(first);
  integer(second);
  bytes_ += '\x86';
}

void PickleWriter::again(uint32_t number) {
  if (number < 256) {
    bytes_ += 'h';
    put_little(bytes_, number, 1);
  } else {
    bytes_ += 'j';
    put_little(bytes_, number, 4);
  }
}

}  // namespace torchreel
