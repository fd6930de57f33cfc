// Microseconds as decimal text -> nanoseconds, exactly. No torch, no Python.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

namespace torchreel {

// In place of a time that is not there.
constexpr int64_t kNoTime = std::numeric_limits<int64_t>::min();

// The time of 12345, 12345.6, 12345.67 or 12345.678; kNoTime of an empty text. False for any other form, and from 2^62.
bool plain_nanoseconds(std::string_view text, int64_t* result);

}  // namespace torchreel
