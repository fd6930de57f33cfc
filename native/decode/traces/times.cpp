#include "decode/traces/times.h"

namespace torchreel {
namespace {

constexpr int64_t kMost = int64_t{1} << 62;
// So many digits are below 10^19 < 2^64.
constexpr size_t kDigits = 19;

// Appends digits to a number; false for any other character.
bool add_digits(std::string_view text, int64_t* number) {
  for (char character : text) {
    auto digit = static_cast<unsigned char>(character - '0');
    if (digit > 9) return false;
    *number = *number * 10 + digit;
  }
  return true;
}

}  // namespace

bool plain_nanoseconds(std::string_view text, int64_t* result) {
  *result = kNoTime;
  if (text.empty()) return true;
  size_t point = text.find('.');
  auto whole = text.substr(0, point);
  auto rest = point == text.npos ? std::string_view() : text.substr(point + 1);
  if (whole.empty() || rest.size() > 3 || rest.empty() != (point == text.npos)) return false;
  if (whole.size() + 3 > kDigits) return false;
  int64_t number = 0;
  if (!add_digits(whole, &number) || !add_digits(rest, &number)) return false;
  for (size_t digits = rest.size(); digits < 3; digits++) number *= 10;
  if (number < 0 || number >= kMost) return false;  // 19 digits stay below 2^64: what is too large is seen as such
  *result = number;
  return true;
}

}  // namespace torchreel
