// Text of which nothing is sure, as text that every reader reads. No torch, no Python.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace torchreel {

// The length of the valid UTF-8 character that the text begins with, or 0.
inline size_t character_length(std::string_view text) {
  auto byte = [&](size_t at) { return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u; };
  unsigned first = byte(0);
  size_t length = first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
  for (size_t k = 1; k < length; k++) {
    if ((byte(k) & 0xc0) != 0x80) return 0;
  }
  // Overlong forms, surrogates, and what lies beyond Unicode.
  if (length == 3 && ((first == 0xe0 && byte(1) < 0xa0) || (first == 0xed && byte(1) >= 0xa0))) return 0;
  if (length == 4 && ((first == 0xf0 && byte(1) < 0x90) || (first == 0xf4 && byte(1) >= 0x90))) return 0;
  return length;
}

// The text with every NUL and every byte that is not valid UTF-8 written as \x and two digits.
inline std::string valid_text(std::string_view text) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string valid;
  valid.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    size_t length = text[i] == '\0' ? 0 : character_length(text.substr(i));
    if (length > 0) {
      valid.append(text, i, length);
      i += length;
    } else {
      auto byte = static_cast<unsigned char>(text[i++]);
      valid.append("\\x").append(1, kDigits[byte >> 4]).append(1, kDigits[byte & 15]);
    }
  }
  return valid;
}

}  // namespace torchreel
