// A direct-mapped cache of one thread: it begins small, so that threads that do little cost little, and grows as it is
// missed. What it held is then looked for anew.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace torchreel {

// Bytes of all the caches of all threads.
inline std::atomic<size_t> cache_bytes{0};

template <class Slot, size_t kFirst, size_t kMost>
class SmallCache {
  static_assert((kFirst & (kFirst - 1)) == 0 && (kMost & (kMost - 1)) == 0);

 public:
  SmallCache() = default;
  SmallCache(SmallCache&& other) noexcept { swap(other); }
  SmallCache& operator=(SmallCache&& other) noexcept {
    swap(other);
    return *this;
  }
  ~SmallCache() { clear(); }

  // Before the first use, and after clear().
  void prepare() {
    if (slots_ == nullptr) resize(kFirst);
  }
  void clear() { resize(0); }

  Slot& find(uint64_t hash) { return slots_[hash & mask_]; }
  // The slot to be filled, when find() gave one that holds something else.
  Slot& missed(uint64_t hash) {
    if (++misses_ > mask_ && mask_ + 1 < kMost) resize(mask_ * 4 + 4);
    return slots_[hash & mask_];
  }

 private:
  void swap(SmallCache& other) {
    std::swap(slots_, other.slots_);
    std::swap(mask_, other.mask_);
    std::swap(misses_, other.misses_);
  }
  void resize(size_t count) {
    if (slots_ != nullptr) cache_bytes.fetch_sub((mask_ + 1) * sizeof(Slot), std::memory_order_relaxed);
    delete[] slots_;
    slots_ = nullptr;
    mask_ = misses_ = 0;
    if (count == 0) return;
    slots_ = new Slot[count < kMost ? count : kMost]();
    mask_ = (count < kMost ? count : kMost) - 1;
    cache_bytes.fetch_add((mask_ + 1) * sizeof(Slot), std::memory_order_relaxed);
  }

  Slot* slots_ = nullptr;
  uint64_t mask_ = 0;
  uint64_t misses_ = 0;
};

}  // namespace torchreel
