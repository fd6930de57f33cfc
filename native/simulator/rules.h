// The settings of a CUDA caching allocator, and what differs between versions of it.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <optional>

namespace torchreel::simulator {

inline constexpr uint64_t kMiB = 1 << 20;
inline constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();
inline constexpr uint64_t kLeastBlock = 512;
inline constexpr uint64_t kMostSmall = kMiB;             // larger requests go to the large pool
inline constexpr uint64_t kSmallSegment = 2 * kMiB;      // what is taken from the device for small requests
inline constexpr uint64_t kLeastOwnSegment = 10 * kMiB;  // from this size on a request has a segment of its own size
inline constexpr uint64_t kLargeRounding = 2 * kMiB;
// More than any device has: sums of a few such sizes still fit 64 bits.
inline constexpr uint64_t kMostBytes = uint64_t{1} << 60;

// Which of several free blocks of the same stream and size is taken first.
enum class TieOrder {
  kAddress,  // torch <= 2.11: the lowest address
  kBlock,    // torch 2.12: the block that was made first
  kSegment,  // torch >= 2.13: the one whose segment was made first, then the lowest address
};

struct Rules {
  uint64_t max_split = kUnlimited;
  uint64_t max_non_split_rounding = 20 * kMiB;
  uint64_t large_segment = 20 * kMiB;
  double gc_threshold = 0;   // 0: never
  bool counts_ages = false;  // garbage may be collected: there are a threshold and a limit
  std::array<uint64_t, 16> roundup_divisions{};
  bool expandable = false;
  bool throw_on_oom = false;
  bool releases_lock = false;  // other threads allocate while one waits for the device
  TieOrder order = TieOrder::kSegment;
  std::optional<uint64_t> limit;      // bytes that the process may reserve, if it has set a fraction
  uint64_t capacity = kUnlimited;     // bytes that the device has
  uint64_t address_seed = 0;          // of a device whose addresses are in no order; 0: they only grow
  uint64_t range_bytes = kMostBytes;  // address space of one expandable segment, before rounding to pages

  static uint64_t round_up(uint64_t size, uint64_t unit) { return (size + unit - 1) / unit * unit; }

  // Bytes of the block for a request.
  uint64_t block_size(uint64_t requested) const {
    if (requested < kLeastBlock) return kLeastBlock;
    const int log = std::bit_width(requested) - 1;
    const uint64_t divisions = roundup_divisions[std::clamp(log - 20, 0, 15)];
    if (divisions <= 1 || requested / kLeastBlock < divisions || requested == kLeastBlock * divisions) {
      return round_up(requested, kLeastBlock);
    }
    if (std::has_single_bit(requested)) return requested;
    const uint64_t floor = uint64_t{1} << log;
    const uint64_t step = floor >> (std::bit_width(divisions) - 1);
    return step == 0 ? floor << 1 : round_up(requested, step);
  }

  // Bytes taken from the device when a block of this size has to be made.
  uint64_t segment_size(uint64_t block) const {
    if (block <= kMostSmall) return kSmallSegment;
    if (block < kLeastOwnSegment) return large_segment;
    return round_up(block, kLargeRounding);
  }

  uint64_t page_size(bool small) const { return small ? kSmallSegment : large_segment; }
  bool oversize(uint64_t block) const { return block >= max_split; }
  // Bytes of such blocks that are released for a block of this size.
  uint64_t oversize_bytes(uint64_t block) const { return std::max(block, max_split); }
};

}  // namespace torchreel::simulator
